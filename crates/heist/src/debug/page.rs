//! The pages for people. A page is one answer: its style and its script are inside.

use super::routes::ROUTES;
use crate::sched::Sched;
use std::fmt::Write;

/// The live page of the scheduler. It asks for `/debug/sched.json` once a second.
pub(super) const SCHED: &str = concat!(
    include_str!("page/head.html"),
    "<style>\n",
    include_str!("page/style.css"),
    "</style>\n",
    include_str!("page/body.html"),
    "<script>\n\"use strict\";\n",
    include_str!("page/format.js"),
    include_str!("page/charts.js"),
    include_str!("page/panels.js"),
    include_str!("page/goroutines.js"),
    include_str!("page/main.js"),
    "</script>\n</body>\n</html>\n",
);

const INDEX_STYLE: &str = "body{font:16px/1.6 system-ui,sans-serif;max-width:44rem;margin:3rem auto;\
     padding:0 1rem;color-scheme:light dark}a{font-family:ui-monospace,monospace;\
     text-decoration:none}a:hover{text-decoration:underline}td{padding:.15rem 1.2rem .15rem 0;\
     vertical-align:top}h1{font-size:1.3rem}";

/// The list of all paths.
pub(super) fn index(sched: &Sched) -> String {
    let name = escaped(&sched.config.name);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{name}: heist</title>\n\
         <style>{INDEX_STYLE}</style>\n<h1>{name}, process {}</h1>\n<table>\n",
        std::process::id(),
    );
    for route in ROUTES {
        // Writing to a String does not fail.
        let _ = writeln!(
            html,
            "<tr><td><a href=\"{0}\">{0}</a><td>{1}",
            route.path,
            escaped(route.about)
        );
    }
    html.push_str("</table>\n</html>\n");
    html
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
