//! The names of policies, as configurations write them.

use super::{FractionalQuota, Order, RunNextTheft, Share, StealPolicy};
use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// A text that names no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsePolicyError {
    what: &'static str,
    names: &'static [&'static str],
    text: String,
}

impl ParsePolicyError {
    /// `text` is none of the `names` of `what`.
    #[must_use]
    pub fn new(what: &'static str, names: &'static [&'static str], text: &str) -> Self {
        Self { what, names, text: text.to_owned() }
    }
}

impl fmt::Display for ParsePolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, names, text } = self;
        write!(f, "`{text}` is no {what}: there are {}", names.join(", "))
    }
}

impl Error for ParsePolicyError {}

/// `FromStr` and `Display` of an enum without fields.
#[macro_export]
#[doc(hidden)]
macro_rules! named_policy {
    ($type:ty, $what:literal, [$($name:literal => $value:path),+ $(,)?]) => {
        impl ::std::str::FromStr for $type {
            type Err = $crate::policy::ParsePolicyError;

            fn from_str(text: &str) -> ::core::result::Result<Self, Self::Err> {
                match text {
                    $($name => Ok($value),)+
                    _ => Err($crate::policy::ParsePolicyError::new($what, &[$($name),+], text)),
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(match self {
                    $($value => $name,)+
                })
            }
        }
    };
}

named_policy!(FractionalQuota, "way to round a quota", [
    "up" => FractionalQuota::Up,
    "down" => FractionalQuota::Down,
    "nearest" => FractionalQuota::Nearest,
]);
named_policy!(Share, "share", [
    "ceil-half" => Share::CeilHalf,
    "floor-half" => Share::FloorHalf,
]);
named_policy!(Order, "order of victims", [
    "coprime" => Order::Coprime,
    "ring" => Order::Ring,
]);
named_policy!(RunNextTheft, "rule for run_next", [
    "last-try" => RunNextTheft::LastTry,
    "never" => RunNextTheft::Never,
]);

/// `go` or `gentle`.
impl FromStr for StealPolicy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, ParsePolicyError> {
        match text {
            "go" => Ok(Self::go()),
            "gentle" => Ok(Self::gentle()),
            _ => Err(ParsePolicyError::new("steal policy", &["go", "gentle"], text)),
        }
    }
}

#[test]
fn names_are_read_as_they_are_written() {
    for policy in [FractionalQuota::Up, FractionalQuota::Down, FractionalQuota::Nearest] {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    for policy in [RunNextTheft::LastTry, RunNextTheft::Never] {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    for policy in [Share::CeilHalf, Share::FloorHalf] {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    for policy in [Order::Coprime, Order::Ring] {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    assert_eq!("gentle".parse(), Ok(StealPolicy::gentle()));
    let error = "Go".parse::<StealPolicy>().unwrap_err();
    assert_eq!(error.to_string(), "`Go` is no steal policy: there are go, gentle");
}
