//! The expansion: a function whose body runs as the main goroutine of a new runtime.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, ItemFn, Result, ReturnType, Token, Type};

use crate::options::{Options, Procs};

/// Which of the two attributes is expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribute {
    Main,
    Test,
}

impl Attribute {
    fn name(self) -> &'static str {
        match self {
            Attribute::Main => "heist::main",
            Attribute::Test => "heist::test",
        }
    }
}

/// Expands one attribute; every mistake becomes a `compile_error!` at its place.
pub(crate) fn expand(attribute: Attribute, args: TokenStream, item: TokenStream) -> TokenStream {
    let function = match syn::parse2::<ItemFn>(item.clone()) {
        Ok(function) => function,
        Err(_) => return not_a_function(attribute, item),
    };
    match try_expand(attribute, args, &function) {
        Ok(tokens) => tokens,
        Err(err) => refuse(attribute, &err, &function),
    }
}

fn try_expand(attribute: Attribute, args: TokenStream, function: &ItemFn) -> Result<TokenStream> {
    check_signature(attribute, function)?;
    let options =
        (|input: syn::parse::ParseStream<'_>| Options::parse(attribute, input)).parse2(args)?;
    let Some(promise) = options.promise else {
        return Err(Error::new(Span::call_site(), missing_promise(attribute)));
    };
    if let Some(attr) = function.attrs.iter().find(|a| a.path().is_ident("test"))
        && attribute == Attribute::Test
    {
        return Err(Error::new_spanned(
            attr,
            "#[heist::test] adds #[test] by itself; remove this one or the test would run twice",
        ));
    }

    let test_attribute = match attribute {
        Attribute::Main => TokenStream::new(),
        Attribute::Test => quote!(#[::core::prelude::v1::test]),
    };
    let attrs = &function.attrs;
    let vis = &function.vis;
    let name = &function.sig.ident;
    let output = &function.sig.output;
    let body = &function.block;
    let ending = Ending::of(output);
    let run_output = ending.output();
    let run = match &options.procs {
        Procs::Default => run_once(attribute, promise, &options, &ending.call(name), None),
        Procs::One(procs) => {
            run_once(attribute, promise, &options, &ending.call(name), Some(procs))
        }
        Procs::Each(list) if should_panic(function) => panic_each(promise, &options, name, list),
        Procs::Each(list) => run_each(promise, &options, name, list, &ending),
    };
    // The body becomes an inner function of the same name: it keeps any return type (also
    // `impl Trait`), can run more than once, and shows up in backtraces under its own name.
    Ok(quote! {
        #test_attribute
        #(#attrs)*
        #vis fn #name() #run_output {
            fn #name() #output #body
            #run
        }
    })
}

/// The handling of the value that the body returns.
///
/// It never leaves its goroutine, so that it need not be `Send`: `Box<dyn Error>` is not. Only the
/// exit code leaves it, made as the caller of a plain `main` would.
enum Ending<'a> {
    Nothing,
    Code(&'a Type),
}

impl<'a> Ending<'a> {
    fn of(output: &'a ReturnType) -> Self {
        match output {
            ReturnType::Type(_, ty) if !is_unit(ty) => Self::Code(ty),
            _ => Self::Nothing,
        }
    }

    /// The return type of the expanded function.
    fn output(&self) -> TokenStream {
        match self {
            Self::Nothing => TokenStream::new(),
            Self::Code(_) => quote!(-> ::std::process::ExitCode),
        }
    }

    /// The code that the goroutine runs.
    fn call(&self, name: &Ident) -> TokenStream {
        match self {
            Self::Nothing => quote!(#name),
            // With the type's span, so that a type that is no `Termination` is pointed at.
            Self::Code(ty) => quote_spanned! {ty.span()=>
                #[allow(unreachable_code, reason = "the body may never return")]
                || ::std::process::Termination::report(#name())
            },
        }
    }
}

fn is_unit(ty: &Type) -> bool {
    matches!(ty, Type::Tuple(tuple) if tuple.elems.is_empty())
}

/// Names of the expansion's own variables, invisible to the user's code and the other way round.
struct Locals {
    runtime: Ident,
    n_procs: Ident,
}

impl Locals {
    fn new() -> Self {
        let local = |name| Ident::new(name, Span::mixed_site());
        Locals { runtime: local("runtime"), n_procs: local("n_procs") }
    }
}

/// Starts a runtime with the options and leaves it in `locals.runtime`.
fn start_runtime(
    promise: Token![unsafe],
    options: &Options,
    procs: Option<TokenStream>,
    locals: &Locals,
) -> TokenStream {
    let procs = procs.map(|value| ("procs".to_owned(), value));
    let others = options.others.iter().map(|(name, value)| (name.to_string(), quote!(#value)));
    let given: Vec<_> = procs.into_iter().chain(others).collect();
    let methods: Vec<_> = given.iter().map(|(name, _)| Ident::new(name, promise.span)).collect();
    let locals_of: Vec<_> =
        given.iter().map(|(name, _)| Ident::new(name, Span::mixed_site())).collect();
    let heist = match &options.krate {
        Some(path) => quote!(#path),
        None => quote!(::heist),
    };
    let values = given.iter().map(|(_, value)| value);
    // SAFETY: the promise is the user's: this is the very word they wrote, with its span, so
    // that `#![forbid(unsafe_code)]` sees it too.
    let built = quote_spanned! {promise.span=>
        unsafe { #heist::Runtime::builder()#(.#methods(#locals_of))*.build() }
    };
    let runtime = &locals.runtime;
    quote! {
        #(let #locals_of = #values;)*
        #[allow(clippy::undocumented_unsafe_blocks, reason = "the attribute states the promise")]
        let #runtime = #built;
        let #runtime = match #runtime {
            ::core::result::Result::Ok(runtime) => runtime,
            ::core::result::Result::Err(err) => {
                ::std::eprintln!("heist: {err}");
                ::std::process::exit(2)
            }
        };
    }
}

fn run_once(
    attribute: Attribute,
    promise: Token![unsafe],
    options: &Options,
    call: &TokenStream,
    procs: Option<&Expr>,
) -> TokenStream {
    let locals = Locals::new();
    let start = start_runtime(promise, options, procs.map(|value| quote!(#value)), &locals);
    let runtime = &locals.runtime;
    // A program whose main goroutine ends itself ends when the others have; a test fails.
    let run = match attribute {
        Attribute::Main => quote!(run_main),
        Attribute::Test => quote!(run),
    };
    quote! {
        #start
        #runtime.#run(#call)
    }
}

/// One run for each value; the first failure is reported with its value and ends the test.
fn run_each(
    promise: Token![unsafe],
    options: &Options,
    name: &Ident,
    list: &[Expr],
    ending: &Ending<'_>,
) -> TokenStream {
    let locals = Locals::new();
    let Locals { runtime, n_procs } = &locals;
    let start = start_runtime(promise, options, Some(quote!(#n_procs)), &locals);
    let failed = format!("heist::test: `{name}` failed with procs = {{}}");
    let call = ending.call(name);
    let (on_end, success) = match ending {
        Ending::Nothing => (quote!(()), quote!()),
        Ending::Code(_) => (
            quote! {{
                if code != ::std::process::ExitCode::SUCCESS {
                    ::std::eprintln!(#failed, #n_procs);
                    return code;
                }
            }},
            quote!(::std::process::ExitCode::SUCCESS),
        ),
    };
    quote! {
        for #n_procs in [#(#list),*] {
            #start
            let outcome = ::std::panic::catch_unwind(
                ::std::panic::AssertUnwindSafe(move || #runtime.run(#call)),
            );
            match outcome {
                ::core::result::Result::Ok(code) => #on_end,
                ::core::result::Result::Err(payload) => {
                    ::std::eprintln!(#failed, #n_procs);
                    ::std::panic::resume_unwind(payload)
                }
            }
        }
        #success
    }
}

/// One run for each value, each of which has to panic.
fn panic_each(
    promise: Token![unsafe],
    options: &Options,
    name: &Ident,
    list: &[Expr],
) -> TokenStream {
    let locals = Locals::new();
    let Locals { runtime, n_procs } = &locals;
    let start = start_runtime(promise, options, Some(quote!(#n_procs)), &locals);
    let survived = format!("heist::test: `{name}` did not panic with procs = {{}}");
    quote! {
        let mut last_panic = ::core::option::Option::None;
        for #n_procs in [#(#list),*] {
            #start
            let outcome = ::std::panic::catch_unwind(
                ::std::panic::AssertUnwindSafe(move || #runtime.run(#name)),
            );
            match outcome {
                ::core::result::Result::Err(payload) => {
                    last_panic = ::core::option::Option::Some(payload);
                }
                ::core::result::Result::Ok(_) => {
                    ::std::eprintln!(#survived, #n_procs);
                    return;
                }
            }
        }
        if let ::core::option::Option::Some(payload) = last_panic {
            ::std::panic::resume_unwind(payload)
        }
    }
}

fn should_panic(function: &ItemFn) -> bool {
    function.attrs.iter().any(|attr| attr.path().is_ident("should_panic"))
}

fn check_signature(attribute: Attribute, function: &ItemFn) -> Result<()> {
    let sig = &function.sig;
    let name = attribute.name();
    if let Some(word) = &sig.asyncness {
        return Err(Error::new(
            word.span(),
            format!(
                "#[{name}] runs blocking-style code on a goroutine; remove `async` and the `.await`s"
            ),
        ));
    }
    if let Some(word) = sig.constness.as_ref().map(Spanned::span) {
        return Err(Error::new(word, format!("#[{name}] needs a plain `fn`; remove `const`")));
    }
    if let Some(abi) = &sig.abi {
        return Err(Error::new_spanned(
            abi,
            format!("#[{name}] needs a plain `fn`; remove the ABI"),
        ));
    }
    if !sig.inputs.is_empty() {
        return Err(Error::new_spanned(
            &sig.inputs,
            format!(
                "the function of #[{name}] takes no arguments; there is no caller to pass them"
            ),
        ));
    }
    if !sig.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &sig.generics,
            format!(
                "the function of #[{name}] cannot be generic; there is no caller to choose the types"
            ),
        ));
    }
    if let Some(clause) = &sig.generics.where_clause {
        return Err(Error::new_spanned(
            clause,
            format!("the function of #[{name}] cannot have a where clause"),
        ));
    }
    Ok(())
}

fn missing_promise(attribute: Attribute) -> String {
    let name = attribute.name();
    format!(
        "#[{name}] needs a promise that the compiler cannot check\n\
         \n\
         A goroutine can move to another OS thread at every park point (a channel operation, a\n\
         lock, a join, a sleep, a yield). So no thread-local borrow, no Rc out of one, and no\n\
         other !Send value may live on a goroutine's stack across a park.\n\
         \n\
         Write #[{name}(unsafe)] to promise that; see heist::docs::safety (docs/SAFETY.md)."
    )
}

/// The error, and a function that the compiler can continue with, so that one mistake gives one
/// error.
fn refuse(attribute: Attribute, err: &Error, function: &ItemFn) -> TokenStream {
    let error = err.to_compile_error();
    let vis = &function.vis;
    let name = &function.sig.ident;
    let rest = match check_signature(attribute, function) {
        Ok(()) => {
            let output = &function.sig.output;
            let body = &function.block;
            quote!(#output #body)
        }
        Err(_) => quote!({}),
    };
    quote! {
        #error
        #[allow(dead_code, reason = "the error above is enough")]
        #vis fn #name() #rest
    }
}

fn not_a_function(attribute: Attribute, item: TokenStream) -> TokenStream {
    let message = format!("#[{}] can only be put on a function with a body", attribute.name());
    let error = Error::new_spanned(&item, message).to_compile_error();
    quote! {
        #error
        #item
    }
}
