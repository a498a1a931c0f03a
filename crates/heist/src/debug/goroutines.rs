//! Lists of goroutines, as text and as JSON.

use super::json;
use super::request::Request;
use super::response::{JSON, Response, TEXT};
use super::routes::{Answer, Context};
use super::state::write_g;
use crate::gmp::described::Described;
use crate::gmp::flags::Flag;
use crate::gmp::{G, pool};
use crate::sched::Sched;
use std::collections::BinaryHeap;
use std::fmt::Write;

/// How many goroutines the JSON lists, if the request does not say.
const LISTED: u64 = 200;
/// The most that it lists.
const LISTED_MAX: u64 = 5000;

/// `/debug/goroutines`: all of them in full with `debug=2`, which is the default here, or counted
/// by state and spawn site with `debug=1`.
pub(super) fn text(context: &Context, request: &Request) -> Result<Answer, Response> {
    let (debug, id) = (request.number("debug")?, request.number("id")?);
    if debug == Some(1) {
        return Ok(Response::new(TEXT, grouped(context.sched())).into());
    }
    // Naming the functions of many stacks takes a while.
    let handle = context.handle().clone();
    Ok(Answer::Later(Box::new(move |_| {
        let text = match id {
            Some(id) => one(handle.sched(), id),
            None => handle.dump_goroutines(),
        };
        Response::new(TEXT, text)
    })))
}

/// One goroutine as in a dump; empty if it has ended.
fn one(sched: &Sched, id: u64) -> String {
    let wanted = Wanted { state: None, site: None, id: Some(id) };
    let (_, found) = lowest(sched, &wanted, 1);
    found.first().map_or_else(String::new, |gp| Described::with_stack(sched, gp).to_string())
}

/// The goroutines by state and spawn site.
pub(super) fn grouped(sched: &Sched) -> String {
    let groups = sched.census();
    let total: usize = groups.iter().map(|group| group.count).sum();
    let mut text = format!("goroutine profile: total {total}\n");
    for group in groups {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{group}");
    }
    text
}

/// What the request asks for.
struct Wanted {
    state: Option<String>,
    site: Option<String>,
    id: Option<u64>,
}

impl Wanted {
    fn includes(&self, gp: &G) -> bool {
        self.id.is_none_or(|id| gp.id.get() == id)
            && self.state.as_ref().is_none_or(|state| Described::state_of(gp) == state)
            && self.site.as_ref().is_none_or(|text| {
                gp.spawn_site().is_some_and(|site| site.to_string().contains(text))
            })
    }
}

/// `/debug/goroutines.json`: those with the lowest numbers that are asked for.
pub(super) fn list(context: &Context, request: &Request) -> Result<Response, Response> {
    let text = |name| request.parameter(name).filter(|text| !text.is_empty());
    let wanted = Wanted { state: text("state"), site: text("site"), id: request.number("id")? };
    let most = request.number("limit")?.unwrap_or(LISTED).min(LISTED_MAX) as usize;
    let (total, found) = lowest(context.sched(), &wanted, most);
    let minute = context.sched().life.minute_now();
    let body = json::object(|json| {
        json.number("total", total);
        json.array("goroutines", |list| {
            for gp in found {
                list.item(|json| {
                    write_g(json, gp);
                    json.number("waited_min", gp.waited_minutes(minute));
                    json.number("parent", gp.parent_id.get());
                    json.flag("locked", gp.flags.has(Flag::LOCKED));
                });
            }
        });
    });
    Ok(Response::new(JSON, body))
}

/// How many goroutines are wanted, and the `most` of them with the lowest numbers. One that ends
/// meanwhile may be listed, or the one that gets its record.
fn lowest(sched: &Sched, wanted: &Wanted, most: usize) -> (usize, Vec<&'static G>) {
    let mut total = 0;
    let mut heap: BinaryHeap<(u64, usize)> = BinaryHeap::new();
    pool::for_each(|gp| {
        if sched.is_mine(gp) && !gp.flags.has(Flag::UNBORN) && wanted.includes(gp) {
            total += 1;
            heap.push((gp.id.get(), std::ptr::from_ref(gp).expose_provenance()));
            if heap.len() > most {
                heap.pop();
            }
        }
    });
    let found = heap.into_sorted_vec().into_iter().map(|(_, at)| {
        // SAFETY: the address of a record, exposed above; records are never unmapped.
        unsafe { &*std::ptr::with_exposed_provenance::<G>(at) }
    });
    (total, found.collect())
}
