//! The option list of the attributes: `unsafe, procs = 2, stack_size = 65536, name = "api"`.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, Result, Token};

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
    pub(crate) stack_size: Option<Expr>,
    pub(crate) name: Option<Expr>,
}

enum Arg {
    Promise(Token![unsafe]),
    Set(Ident, Expr),
}

impl Parse for Arg {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(Token![unsafe]) {
            return Ok(Arg::Promise(input.parse()?));
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
            Options { promise: None, procs: Procs::Default, stack_size: None, name: None };
        for arg in Punctuated::<Arg, Token![,]>::parse_terminated(input)? {
            match arg {
                Arg::Promise(word) if options.promise.is_some() => {
                    return Err(given_twice("unsafe", word.span));
                }
                Arg::Promise(word) => options.promise = Some(word),
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
            "stack_size" => self.stack_size.replace(value).is_some(),
            "name" => self.name.replace(value).is_some(),
            _ => {
                return Err(Error::new(
                    key.span(),
                    format!("no option `{name}`: there are `procs`, `stack_size` and `name`"),
                ));
            }
        };
        if taken {
            return Err(given_twice(&name, key.span()));
        }
        Ok(())
    }
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
