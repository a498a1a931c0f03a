//! Writing JSON: objects and arrays of numbers, texts and flags.

use std::fmt::{Display, Write};

/// The inside of an object or of an array.
pub(super) struct Json<'a> {
    text: &'a mut String,
    is_first: bool,
}

/// An object as text.
pub(super) fn object(fill: impl FnOnce(&mut Json<'_>)) -> String {
    let mut text = String::new();
    enclosed(&mut text, ('{', '}'), fill);
    text.push('\n');
    text
}

fn enclosed(text: &mut String, (open, close): (char, char), fill: impl FnOnce(&mut Json<'_>)) {
    text.push(open);
    fill(&mut Json { text, is_first: true });
    text.push(close);
}

impl Json<'_> {
    fn comma(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.text.push(',');
        }
    }

    fn key(&mut self, key: &str) {
        self.comma();
        quote(self.text, key);
        self.text.push(':');
    }

    /// A field that is a finite number.
    pub(super) fn number(&mut self, key: &str, value: impl Display) {
        self.key(key);
        // Writing to a String does not fail.
        let _ = write!(self.text, "{value}");
    }

    /// A field that is a finite number, or null.
    pub(super) fn maybe(&mut self, key: &str, value: Option<impl Display>) {
        match value {
            Some(value) => self.number(key, value),
            None => self.number(key, "null"),
        }
    }

    /// A field that is a text.
    pub(super) fn string(&mut self, key: &str, value: &str) {
        self.key(key);
        quote(self.text, value);
    }

    /// A field that is a flag.
    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.number(key, value);
    }

    /// A field that is an object.
    pub(super) fn object(&mut self, key: &str, fill: impl FnOnce(&mut Json<'_>)) {
        self.key(key);
        enclosed(self.text, ('{', '}'), fill);
    }

    /// A field that is an array.
    pub(super) fn array(&mut self, key: &str, fill: impl FnOnce(&mut Json<'_>)) {
        self.key(key);
        enclosed(self.text, ('[', ']'), fill);
    }

    /// An element that is a number.
    pub(super) fn element(&mut self, value: impl Display) {
        self.comma();
        // Writing to a String does not fail.
        let _ = write!(self.text, "{value}");
    }

    /// An element that is an object.
    pub(super) fn item(&mut self, fill: impl FnOnce(&mut Json<'_>)) {
        self.comma();
        enclosed(self.text, ('{', '}'), fill);
    }

    /// An element that is an array.
    pub(super) fn row(&mut self, fill: impl FnOnce(&mut Json<'_>)) {
        self.comma();
        enclosed(self.text, ('[', ']'), fill);
    }
}

fn quote(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            // The page may be embedded in HTML: no tag ends inside of a text.
            '\0'..='\x1f' | '<' | '\x7f' | '\u{2028}' | '\u{2029}' => {
                // Writing to a String does not fail.
                let _ = write!(text, "\\u{:04x}", c as u32);
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

#[test]
fn texts_are_escaped() {
    let text = object(|json| {
        json.string("a\"b", "c\\d\n<script>é");
        json.array("list", |list| {
            list.element(1);
            list.item(|item| item.flag("yes", true));
            list.row(|row| row.element(0.5));
        });
        json.maybe("none", None::<u8>);
    });
    let expected =
        r#"{"a\"b":"c\\d\u000a\u003cscript>é","list":[1,{"yes":true},[0.5]],"none":null}"#;
    assert_eq!(text.trim_end(), expected);
}
