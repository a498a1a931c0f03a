//! A Rust file split into code and comments, line by line.
//!
//! The rules look for words; a word in a string or in a comment must not count as code, and a
//! comment must be found even when it follows code on its line. This lexer does no more than that.

/// One line: code without comments and string contents, and the text of its comments.
#[derive(Clone, Debug, Default)]
pub struct Line {
    pub code: String,
    pub comment: String,
    /// The line belongs to an item behind `#[cfg(test)]` or `#[test]`.
    pub in_test: bool,
}

/// A file of the repository, with its path relative to the root.
#[derive(Debug)]
pub struct Source {
    pub path: String,
    pub text: String,
    pub lines: Vec<Line>,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let mut lines = split(text);
        if is_test_path(path) {
            lines.iter_mut().for_each(|line| line.in_test = true);
        } else {
            mark_tests(&mut lines);
        }
        Source { path: path.to_owned(), text: text.to_owned(), lines }
    }

    /// The lines of shipped code, with their numbers.
    pub fn shipped(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.numbered().filter(|(_, line)| !line.in_test)
    }

    /// All lines, with their numbers as an editor shows them.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().map(|(i, line)| (i + 1, line))
    }

    /// Whether a comment on line `number` or on one of the `above` lines before it has `word`.
    pub fn comment_near(&self, number: usize, above: usize, word: &str) -> bool {
        let first = number.saturating_sub(above + 1);
        self.lines[first..number].iter().any(|line| line.comment.contains(word))
    }
}

/// Whether the whole file is test code.
pub fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| part == "tests")
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
}

/// Byte offsets at which `word` stands alone, that is, not inside a longer identifier.
pub fn find_word(code: &str, word: &str) -> Vec<usize> {
    let is_ident = |c: char| c.is_alphanumeric() || c == '_';
    let bounded_left = word.starts_with(is_ident);
    let bounded_right = word.ends_with(is_ident);
    code.match_indices(word)
        .filter(|(at, _)| {
            let before = code[..*at].chars().next_back();
            let after = code[at + word.len()..].chars().next();
            let inside_left = bounded_left && before.is_some_and(is_ident);
            let inside_right = bounded_right && after.is_some_and(is_ident);
            !inside_left && !inside_right
        })
        .map(|(at, _)| at)
        .collect()
}

pub fn has_word(code: &str, word: &str) -> bool {
    !find_word(code, word).is_empty()
}

fn split(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![Line::default()];
    let mut at = 0;
    while at < chars.len() {
        let end = match (chars[at], chars.get(at + 1)) {
            ('/', Some('/')) => end_of_line(&chars, at),
            ('/', Some('*')) => end_of_block_comment(&chars, at),
            _ => at,
        };
        if end > at {
            push(&mut lines, &chars[at..end], |line| &mut line.comment);
            at = end;
            continue;
        }
        let Some((open, end)) = literal(&chars, at) else {
            push(&mut lines, &chars[at..=at], |line| &mut line.code);
            at += 1;
            continue;
        };
        // Keep the quotes, drop the text between them, keep the line count.
        let quotes = [chars[open], chars[open]];
        push(&mut lines, &chars[at..open], |line| &mut line.code);
        push(&mut lines, &quotes, |line| &mut line.code);
        let breaks = chars[open..end].iter().filter(|c| **c == '\n').count();
        lines.extend(std::iter::repeat_n(Line::default(), breaks));
        at = end;
    }
    lines
}

fn push(lines: &mut Vec<Line>, chars: &[char], part: fn(&mut Line) -> &mut String) {
    for c in chars {
        match c {
            '\n' => lines.push(Line::default()),
            c => part(lines.last_mut().expect("there is always a line")).push(*c),
        }
    }
}

fn end_of_line(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |n| at + n)
}

fn end_of_block_comment(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => (depth, i) = (depth + 1, i + 2),
            ('*', '/') => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

/// If a string or character literal starts at `at`: where its quote is and where it ends.
fn literal(chars: &[char], at: usize) -> Option<(usize, usize)> {
    let after_ident = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    let mut open = at;
    if !after_ident {
        while open < at + 2 && matches!(chars.get(open), Some('b' | 'c' | 'r')) {
            open += 1;
        }
    }
    let raw = open > at && chars[open - 1] == 'r';
    let hashes = match raw {
        true => chars[open..].iter().take_while(|c| **c == '#').count(),
        false => 0,
    };
    let open = open + hashes;
    match chars.get(open)? {
        '"' if raw => {
            let close: String = format!("\"{}", "#".repeat(hashes));
            let close: Vec<char> = close.chars().collect();
            let found = chars[open + 1..].windows(close.len()).position(|w| w == close);
            Some((open, found.map_or(chars.len(), |n| open + 1 + n + close.len())))
        }
        '"' => Some((open, end_of_quoted(chars, open))),
        // A lifetime or label has no quote behind its first letter.
        '\'' if chars.get(open + 1) == Some(&'\\') || chars.get(open + 2) == Some(&'\'') => {
            Some((open, end_of_quoted(chars, open)))
        }
        _ => None,
    }
}

fn end_of_quoted(chars: &[char], open: usize) -> usize {
    let mut i = open + 1;
    while i < chars.len() && chars[i] != chars[open] {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

fn mark_tests(lines: &mut [Line]) {
    let mut number = 0;
    while number < lines.len() {
        if !starts_test_item(&lines[number].code) {
            number += 1;
            continue;
        }
        let end = end_of_item(lines, number);
        lines[number..=end].iter_mut().for_each(|line| line.in_test = true);
        number = end + 1;
    }
}

fn starts_test_item(code: &str) -> bool {
    let code = code.trim();
    let conditional = code.starts_with("#[cfg(") && has_word(code, "test");
    code == "#[test]" || (conditional && !code.contains("not(test"))
}

/// The last line of the item whose attributes start at `first`.
fn end_of_item(lines: &[Line], first: usize) -> usize {
    let mut braces = 0_usize;
    let mut brackets = 0_usize;
    for (number, line) in lines.iter().enumerate().skip(first) {
        for c in line.code.chars() {
            match c {
                '[' | '(' => brackets += 1,
                ']' | ')' => brackets = brackets.saturating_sub(1),
                '{' => braces += 1,
                '}' if braces <= 1 => return number,
                '}' => braces -= 1,
                ';' if braces == 0 && brackets == 0 => return number,
                _ => {}
            }
        }
    }
    lines.len() - 1
}

#[test]
fn strings_and_comments_are_not_code() {
    let source = Source::new(
        "a.rs",
        "let a = \"x // no { comment\"; // yes\n/* one\n/* two */ */ let b = 'c';\n\
         let c: &'static str = r#\"y \" z\"#;\nlet d = b'\\''; let e = \"1\n2\"; f();\n",
    );
    let code: Vec<_> = source.lines.iter().map(|l| l.code.trim()).collect();
    assert_eq!(
        code,
        [
            "let a = \"\";",
            "",
            "let b = '';",
            "let c: &'static str = r#\"\";",
            "let d = b''; let e = \"\"",
            "; f();",
            ""
        ]
    );
    assert_eq!(source.lines[0].comment, "// yes");
    assert_eq!(source.lines[2].comment, "/* two */ */");
}

#[test]
fn items_behind_cfg_test_are_test_code() {
    let source = Source::new(
        "a.rs",
        "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n\
         #[cfg(all(test, loom))]\nmod model;\nfn d() {}\n#[cfg(not(test))]\nfn e() {}\n",
    );
    let shipped: Vec<_> = source.shipped().map(|(number, _)| number).collect();
    assert_eq!(shipped, [1, 6, 9, 10, 11, 12]);
}

#[test]
fn a_file_of_tests_is_test_code() {
    assert!(is_test_path("crates/heist/tests/spawn.rs"));
    assert!(is_test_path("crates/heist/src/sched/steal_tests.rs"));
    assert!(!is_test_path("crates/heist/src/sched/steal.rs"));
}

#[test]
fn words_end_where_identifiers_end() {
    assert_eq!(find_word("libc::x mylibc::y libc2", "libc"), [0]);
    assert_eq!(find_word("eprintln!(print!(", "print!"), [10]);
    assert_eq!(find_word("a.to_string()", ".to_string("), [1]);
}
