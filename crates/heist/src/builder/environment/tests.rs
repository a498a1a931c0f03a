//! Properties of the parser: nothing in a variable makes it panic, and what it accepts has the
//! value that was written.

use super::*;
use proptest::prelude::*;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

const VARIABLES: [&str; 6] = [
    "HEIST_PROCS",
    "HEIST_STACK_SIZE",
    "HEIST_MAX_THREADS",
    "HEIST_STEAL_POLICY",
    "HEIST_TRACE",
    "HEIST_DEBUG",
];

/// A builder after one variable was read.
fn built(variable: &str, value: impl Into<OsString>) -> Result<Builder, BuildError> {
    let value = value.into();
    Builder::new().with_variables(&|name| (name == variable).then(|| value.clone()))
}

fn is_refused(variable: &str, value: &str) -> bool {
    match built(variable, value) {
        Ok(_) => false,
        Err(BuildError::Environment { variable: named, value: shown, .. }) => {
            assert_eq!((named, &*shown), (variable, value));
            true
        }
        Err(other) => panic!("{variable}={value:?}: {other}"),
    }
}

/// One item of `HEIST_DEBUG` and what it sets. Items that change the whole process are left out.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Chaos(u64),
    Quantum(u32, &'static str),
    SchedTrace(u64),
    Detail(bool),
    ShortTurns(bool),
    Flight(u32),
    TlsReport(bool),
    Container(bool),
    Update(bool),
}

impl Item {
    fn text(&self) -> String {
        match self {
            Self::Chaos(seed) => format!("chaos={seed}"),
            Self::Quantum(n, unit) => format!("quantum={n}{unit}"),
            Self::SchedTrace(ms) => format!("schedtrace={ms}"),
            Self::Detail(on) => format!("scheddetail={}", u8::from(*on)),
            Self::ShortTurns(on) => format!("shortturns={}", u8::from(*on)),
            Self::Flight(seconds) => format!("flightrecorder={seconds}"),
            Self::TlsReport(true) => "tlsreport".into(),
            Self::TlsReport(false) => "tlsreport=0".into(),
            Self::Container(on) => format!("containermaxprocs={}", u8::from(*on)),
            Self::Update(on) => format!("updatemaxprocs={}", u8::from(*on)),
        }
    }

    fn apply(&self, to: &mut Builder) {
        match *self {
            Self::Chaos(seed) => to.chaos = Some(seed),
            Self::Quantum(n, unit) => {
                let unit_ns = match unit {
                    "ns" => 1,
                    "us" | "\u{b5}s" => 1_000,
                    "ms" => 1_000_000,
                    _ => 1_000_000_000,
                };
                to.quantum = Duration::from_nanos(u64::from(n) * unit_ns);
            }
            Self::SchedTrace(ms) => to.trace_ms = ms,
            Self::Detail(on) => to.trace_detail = if on { Detail::All } else { Detail::Summary },
            Self::ShortTurns(on) => to.short_turns = on,
            Self::Flight(seconds) => to.traces.flight = Some(Duration::from_secs(seconds.into())),
            Self::TlsReport(on) => to.tls_report = on,
            Self::Container(on) => {
                if !on {
                    to.cgroup_root = None;
                }
            }
            Self::Update(on) => {
                if !on {
                    to.follow_procs = false;
                }
            }
        }
    }
}

fn item() -> impl Strategy<Value = Item> {
    prop_oneof![
        any::<u64>().prop_map(Item::Chaos),
        (any::<u32>(), prop::sample::select(vec!["ns", "us", "\u{b5}s", "ms", "s"]))
            .prop_map(|(n, unit)| Item::Quantum(n, unit)),
        any::<u64>().prop_map(Item::SchedTrace),
        any::<bool>().prop_map(Item::Detail),
        any::<bool>().prop_map(Item::ShortTurns),
        (1..u32::MAX).prop_map(Item::Flight),
        any::<bool>().prop_map(Item::TlsReport),
        any::<bool>().prop_map(Item::Container),
        any::<bool>().prop_map(Item::Update),
    ]
}

/// Text that is close to a valid list, so that it comes past the first comparison.
fn nearly_an_item() -> impl Strategy<Value = String> {
    let key =
        "(chaos|quantum|schedtrace|scheddetail|server|socket|flightrecorder|tlsreport|[a-z]{0,9})";
    (key, "=?", "[0-9a-z.:+\u{b5}-]{0,6}|\\PC{0,4}")
        .prop_map(|(key, equals, value)| format!("{key}{equals}{value}"))
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(1_u8.., 0..60)) {
        for variable in VARIABLES {
            if let Err(error) = built(variable, OsString::from_vec(bytes.clone())) {
                prop_assert!(error.to_string().starts_with(variable), "{error}");
            }
        }
    }

    #[test]
    fn no_list_makes_it_panic(items in prop::collection::vec(nearly_an_item(), 0..5)) {
        let list = items.join(",");
        if let Err(error) = built("HEIST_DEBUG", &list) {
            prop_assert!(error.to_string().contains(&format!("{list:?}")), "{error}");
        }
    }

    #[test]
    fn numbers_are_what_was_written(n in any::<usize>(), blanks in "[ \t]{0,2}") {
        let text = format!("{blanks}{n}{blanks}");
        if n == 0 {
            prop_assert!(is_refused("HEIST_PROCS", &text));
            prop_assert!(is_refused("HEIST_MAX_THREADS", &text));
        } else {
            prop_assert_eq!(built("HEIST_PROCS", &text).unwrap().procs, Some(n));
            prop_assert_eq!(built("HEIST_MAX_THREADS", &text).unwrap().max_threads, n);
        }
        prop_assert_eq!(built("HEIST_STACK_SIZE", &text).unwrap().stack_bytes, n);
    }

    #[test]
    fn sizes_have_units_and_do_not_wrap_around(n in any::<u64>(), shift in 0..64_u32, unit in "[kKmM]") {
        let n = n >> shift;
        let bytes = u128::from(n) << if unit.eq_ignore_ascii_case("k") { 10 } else { 20 };
        let text = format!("{n}{unit}");
        match usize::try_from(bytes) {
            Ok(bytes) => prop_assert_eq!(built("HEIST_STACK_SIZE", &text).unwrap().stack_bytes, bytes),
            Err(_) => prop_assert!(is_refused("HEIST_STACK_SIZE", &text)),
        }
    }

    /// Items take effect from left to right, whatever blanks and empty items are between them.
    #[test]
    fn a_list_is_its_items_in_turn(
        items in prop::collection::vec((item(), "[ ,]{0,3}"), 0..12),
    ) {
        let mut expected = Builder::new();
        let mut list = String::new();
        for (item, gap) in &items {
            item.apply(&mut expected);
            list += &format!("{gap}{},", item.text());
        }
        let built = built("HEIST_DEBUG", &list).unwrap();
        prop_assert_eq!(format!("{built:?}"), format!("{expected:?}"));
    }

    #[test]
    fn one_wrong_item_refuses_the_list(
        before in prop::collection::vec(item(), 0..4),
        wrong in "(chaos=|quantum=5|quantum=us|schedtrace=x|flightrecorder=0|socket=2|nothing)",
        after in prop::collection::vec(item(), 0..4),
    ) {
        let texts = before.iter().map(Item::text).chain([wrong]);
        let list: Vec<_> = texts.chain(after.iter().map(Item::text)).collect();
        prop_assert!(is_refused("HEIST_DEBUG", &list.join(",")));
    }

    #[test]
    fn a_trace_has_the_file_and_the_time_that_were_written(
        file in "[a-z0-9./, ]{0,20}[a-z]",
        ms in prop::option::of(1..10_000_000_u64),
    ) {
        let seconds = ms.map(|ms| format!(",{}.{:03}", ms / 1000, ms % 1000)).unwrap_or_default();
        // A file whose name has a comma in it needs the time.
        prop_assume!(ms.is_some() || !file.contains(','));
        let built = built("HEIST_TRACE", format!("{file}{seconds}")).unwrap();
        let (path, time) = built.traces.file.unwrap();
        prop_assert_eq!(path, PathBuf::from(file.trim_start()));
        let near = |time: Duration, ms: u64| time.abs_diff(Duration::from_millis(ms)).as_micros() == 0;
        let is_same = match (time, ms) {
            (None, None) => true,
            (Some(time), Some(ms)) => near(time, ms),
            _ => false,
        };
        prop_assert!(is_same, "{:?}, expected {:?}", time, ms);
    }
}
