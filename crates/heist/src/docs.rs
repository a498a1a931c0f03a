//! The manual: topics that do not belong to a single item.
//!
//! Each page is a file of the folder `docs` in the package, so messages of the runtime and of the
//! macros can point here and to the file alike. The module exists in the documentation only.

/// [SAFETY.md]: safety
/// [guide.md]: guide
/// [OPERATING.md]: operating
#[doc = include_str!("../docs/SAFETY.md")]
pub mod safety {}

/// [SAFETY.md]: safety
/// [guide.md]: guide
/// [OPERATING.md]: operating
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}

/// [SAFETY.md]: safety
/// [guide.md]: guide
/// [OPERATING.md]: operating
#[doc = include_str!("../docs/OPERATING.md")]
pub mod operating {}
