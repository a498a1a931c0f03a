//! The option list of the attributes: `unsafe, procs = 2, stack_size = 65536, name = "api"`.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, LitStr, Path, Result, Token};

use crate::expand::Attribute;

/// How many Ps the runtime of the function has.
pub(crate) enum Procs {
    /// The runtime's own default.
    Default,
    /// `procs = 2`
    One(Expr),
    /// `procs = [1, 2, 4]`: one run of the body for each value.
    Each(Vec<Expr>),
}

/// The options that the user wrote between the parentheses.
pub(crate) struct Options {
    /// The promise; `None` means that it was not given.
    pub(crate) promise: Option<Token![unsafe]>,
    pub(crate) procs: Procs,
    /// The other options of the builder, in the order in which they were written.
    pub(crate) others: Vec<(Ident, Expr)>,
    /// The path of heist, if the dependency has another name.
    pub(crate) krate: Option<Path>,
}

/// The methods of the builder, besides `procs`, that are options under the same name.
pub(crate) const OTHERS: &[&str] = &[
    "stack_size",
    "name",
    "latency_procs",
    "fractional_quota",
    "max_threads",
    "steal_policy",
    "panic_policy",
    "overflow_policy",
    "shutdown_timeout",
    "quantum",
    "wake_up_bound",
    "forced_preemption",
    "deadlock_detection",
    "seed",
    "chaos",
];

enum Arg {
    Promise(Token![unsafe]),
    Crate(Token![crate], Path),
    Set(Ident, Expr),
}

impl Parse for Arg {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(Token![unsafe]) {
            return Ok(Arg::Promise(input.parse()?));
        }
        if input.peek(Token![crate]) {
            let word = input.parse()?;
            input.parse::<Token![=]>()?;
            return Ok(Arg::Crate(word, parse_crate(input)?));
        }
        let key: Ident = input
            .parse()
            .map_err(|err| Error::new(err.span(), "expected `unsafe` or `option = value`"))?;
        if !input.peek(Token![=]) {
            return Err(Error::new(
                key.span(),
                format!("expected `unsafe` or `option = value`, found `{key}` without a value"),
            ));
        }
        input.parse::<Token![=]>()?;
        Ok(Arg::Set(key, input.parse()?))
    }
}

impl Options {
    /// Parses the list; `attribute` decides whether `procs` may be a list.
    pub(crate) fn parse(attribute: Attribute, input: ParseStream<'_>) -> Result<Self> {
        let mut options =
            Options { promise: None, procs: Procs::Default, others: Vec::new(), krate: None };
        for arg in Punctuated::<Arg, Token![,]>::parse_terminated(input)? {
            match arg {
                Arg::Promise(word) if options.promise.is_some() => {
                    return Err(given_twice("unsafe", word.span));
                }
                Arg::Promise(word) => options.promise = Some(word),
                Arg::Crate(word, _) if options.krate.is_some() => {
                    return Err(given_twice("crate", word.span));
                }
                Arg::Crate(_, path) => options.krate = Some(path),
                Arg::Set(key, value) => options.set(attribute, &key, value)?,
            }
        }
        Ok(options)
    }

    fn set(&mut self, attribute: Attribute, key: &Ident, value: Expr) -> Result<()> {
        let name = key.to_string();
        let taken = match name.as_str() {
            "procs" if !matches!(self.procs, Procs::Default) => true,
            "procs" => {
                self.procs = parse_procs(attribute, value)?;
                false
            }
            _ if OTHERS.contains(&name.as_str()) => {
                let is_taken = self.others.iter().any(|(other, _)| *other == name);
                self.others.push((key.clone(), value));
                is_taken
            }
            _ => {
                let others = OTHERS.join("`, `");
                let problem = format!("no option `{name}`: there are `crate`, `procs`, `{others}`");
                return Err(Error::new(key.span(), problem));
            }
        };
        if taken {
            return Err(given_twice(&name, key.span()));
        }
        Ok(())
    }
}

/// `crate = my::heist`, or the same as a text.
fn parse_crate(input: ParseStream<'_>) -> Result<Path> {
    if input.peek(LitStr) { input.parse::<LitStr>()?.parse() } else { Path::parse_mod_style(input) }
}

fn parse_procs(attribute: Attribute, value: Expr) -> Result<Procs> {
    let Expr::Array(list) = value else {
        return Ok(Procs::One(value));
    };
    if attribute == Attribute::Main {
        return Err(Error::new_spanned(
            list,
            "a list of procs works only in #[heist::test]; give one number here",
        ));
    }
    if list.elems.is_empty() {
        return Err(Error::new_spanned(
            list,
            "an empty list of procs would never run the test; give at least one number",
        ));
    }
    Ok(Procs::Each(list.elems.into_iter().collect()))
}

fn given_twice(name: &str, span: Span) -> Error {
    Error::new(span, format!("`{name}` is given twice"))
}
