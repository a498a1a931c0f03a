//! Numbers as people read them.

use std::time::Duration;

/// `1234567` is `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three digits and a unit: `248 ns`, `1.50 ms`, `12.3 s`.
pub fn time(time: Duration) -> String {
    nanoseconds(time.as_secs_f64() * 1e9)
}

/// The share of one item.
pub fn cost(total: Duration, n_items: u64) -> String {
    nanoseconds(total.as_secs_f64() * 1e9 / n_items.max(1) as f64)
}

fn nanoseconds(ns: f64) -> String {
    scaled(ns, &["ns", "µs", "ms", "s"], 1000.0)
}

/// Three digits and a unit: `512 B`, `4.25 KiB`, `5.10 GiB`.
pub fn bytes(n: u64) -> String {
    scaled(n as f64, &["B", "KiB", "MiB", "GiB", "TiB"], 1024.0)
}

fn scaled(mut value: f64, units: &[&str], step: f64) -> String {
    let mut at = 0;
    // 999.5 would be written as 1000.
    while value >= 999.5 && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    let unit = units[at];
    // The smallest unit has no parts worth showing, unless it is less than ten.
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => usize::from(at > 0),
        v if at == 0 && (unit == "B" || v == 0.0) => 0,
        _ if at == 0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

#[test]
fn counts_are_grouped() {
    let written = [0, 999, 1000, 12_345, 1_000_000].map(count);
    assert_eq!(written, ["0", "999", "1,000", "12,345", "1,000,000"]);
}

#[test]
fn times_have_three_digits() {
    let ns = |n| time(Duration::from_nanos(n));
    assert_eq!(ns(0), "0 ns");
    assert_eq!(ns(248), "248 ns");
    assert_eq!(ns(999), "999 ns");
    assert_eq!(ns(1_000), "1.00 µs");
    assert_eq!(ns(999_700), "1.00 ms");
    assert_eq!(ns(12_340_000), "12.3 ms");
    assert_eq!(ns(61_000_000_000), "61.0 s");
    assert_eq!(ns(1_200_000_000_000), "1200 s");
}

#[test]
fn a_cost_is_a_share() {
    assert_eq!(cost(Duration::from_millis(250), 1_000_000), "250 ns");
    assert_eq!(cost(Duration::from_nanos(7), 2), "3.5 ns");
    assert_eq!(cost(Duration::from_nanos(5), 0), "5.0 ns");
}

#[test]
fn bytes_have_three_digits() {
    assert_eq!(bytes(0), "0 B");
    assert_eq!(bytes(7), "7 B");
    assert_eq!(bytes(512), "512 B");
    assert_eq!(bytes(1023), "1.00 KiB");
    assert_eq!(bytes(4352), "4.25 KiB");
    assert_eq!(bytes(5_476_083_302), "5.10 GiB");
}
