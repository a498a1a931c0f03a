//! Why a runtime could not be built.

use std::error::Error;
use std::fmt;

/// Why a runtime could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// An option has an invalid value.
    Option {
        /// The name of the option.
        option: &'static str,
        /// The problem, and how to fix it.
        problem: String,
    },
    /// An environment variable has an invalid value.
    Environment {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// A description of valid values.
        expected: &'static str,
    },
    /// The system refused a thread or memory.
    System(std::io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option { option, problem } => write!(f, "{option}: {problem}"),
            Self::Environment { variable, value, expected } => {
                write!(f, "{variable}={value:?} makes no sense: expected {expected}")
            }
            Self::System(error) => write!(f, "the system refuses to start a runtime: {error}"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            _ => None,
        }
    }
}
