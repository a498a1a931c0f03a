//! Power series as goroutines that hand out their coefficients when they are asked: a large
//! irregular network, with loops in it.
//!
//! The idea is McIlroy's, "Squinting at power series". A series gets requests through one channel
//! and sends coefficients through another, so nothing is computed before it is needed; a product
//! needs a product of the rest, so every coefficient adds goroutines.

use crate::matrix;

use heist::chan::{self, Receiver, Sender};
use heist::{go, select};
use std::collections::VecDeque;
use std::ops::{Add, Div, Mul};

/// A fraction in lowest terms, with a positive denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ratio(i128, i128);

fn ratio(n: i128, d: i128) -> Ratio {
    fn gcd(a: i128, b: i128) -> i128 {
        if b == 0 { a.abs() } else { gcd(b, a % b) }
    }
    let by = gcd(n, d).max(1) * d.signum();
    Ratio(n / by, d / by)
}

impl Add for Ratio {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        ratio(self.0 * other.1 + other.0 * self.1, self.1 * other.1)
    }
}

impl Mul for Ratio {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        ratio(self.0 * other.0, self.1 * other.1)
    }
}

impl Div for Ratio {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        ratio(self.0 * other.1, self.1 * other.0)
    }
}

/// The end that requests coefficients.
struct Series {
    ask: Sender<()>,
    answers: Receiver<Ratio>,
}

/// The end that sends coefficients.
struct Source {
    asked: Receiver<()>,
    answer: Sender<Ratio>,
}

/// No end asks any more.
struct Over;

fn ends() -> (Source, Series) {
    let (ask, asked) = chan::bounded(1);
    let (answer, answers) = chan::bounded(0);
    (Source { asked, answer }, Series { ask, answers })
}

/// A series whose coefficients `body` hands out.
fn series(body: impl FnOnce(Source) -> Result<(), Over> + Send + 'static) -> Series {
    let (source, series) = ends();
    go(move || body(source));
    series
}

impl Source {
    /// Whether no more requests can come.
    fn is_over(&self) -> bool {
        self.asked.is_closed() && self.asked.is_empty()
    }

    /// Waits for a request, and only then computes the answer.
    fn put(&self, coefficient: impl FnOnce() -> Result<Ratio, Over>) -> Result<(), Over> {
        self.asked.recv().map_err(|_| Over)?;
        self.answer.send(coefficient()?).map_err(|_| Over)
    }
}

impl Series {
    fn next(&self) -> Result<Ratio, Over> {
        self.ask.send(()).map_err(|_| Over)?;
        self.answers.recv().map_err(|_| Over)
    }

    fn first(&self, n: usize) -> Vec<Ratio> {
        (0..n).map(|_| self.next().ok().expect("it has no end")).collect()
    }
}

/// The same coefficients twice, to two ends that ask independently. While one of them waits, the
/// other gets the coefficients that are there: in a loop the first depends on the second.
fn split(from: Series) -> (Series, Series) {
    let (left, one) = ends();
    let (right, other) = ends();
    go(move || {
        let sides = [left, right];
        let mut waiting = [false; 2];
        let mut behind = [VecDeque::new(), VecDeque::new()];
        let mut asked = false;
        loop {
            for i in 0..2 {
                if waiting[i]
                    && let Some(coefficient) = behind[i].pop_front()
                {
                    waiting[i] = false;
                    // An end that has stopped asking is not served again.
                    let _ = sides[i].answer.send(coefficient);
                }
            }
            if waiting.contains(&true) && !asked {
                asked = true;
                if from.ask.send(()).is_err() {
                    return;
                }
            }
            // Asked once: a side that ends after this look still wakes the select that follows.
            let over = sides.each_ref().map(Source::is_over);
            if over == [true; 2] {
                return;
            }
            let asked_by = |i: usize| if over[i] { chan::never() } else { sides[i].asked.clone() };
            select! {
                recv(asked_by(0)) -> ask => waiting[0] = ask.is_ok(),
                recv(asked_by(1)) -> ask => waiting[1] = ask.is_ok(),
                recv(from.answers) -> answer => {
                    let Ok(answer) = answer else { return };
                    asked = false;
                    behind.iter_mut().for_each(|queue| queue.push_back(answer));
                }
            }
        }
    });
    (one, other)
}

/// The coefficients by their number.
fn of(coefficient: impl Fn(i128) -> Ratio + Send + 'static) -> Series {
    series(move |out| {
        for n in 0.. {
            out.put(|| Ok(coefficient(n)))?;
        }
        Ok(())
    })
}

fn scale(by: Ratio, f: Series) -> Series {
    series(move |out| {
        loop {
            out.put(|| Ok(by * f.next()?))?;
        }
    })
}

fn add(f: Series, g: Series) -> Series {
    series(move |out| {
        loop {
            out.put(|| Ok(f.next()? + g.next()?))?;
        }
    })
}

/// `(f + x F) (g + x G) = f g + x (f G + g F + x F G)`.
fn multiply(f: Series, g: Series) -> Series {
    series(move |out| {
        let mut heads = (ratio(0, 1), ratio(0, 1));
        out.put(|| {
            heads = (f.next()?, g.next()?);
            Ok(heads.0 * heads.1)
        })?;
        let ((f, f_again), (g, g_again)) = (split(f), split(g));
        let sides = add(scale(heads.0, g), scale(heads.1, f));
        out.put(|| sides.next())?;
        let rest = multiply(f_again, g_again);
        loop {
            out.put(|| Ok(sides.next()? + rest.next()?))?;
        }
    })
}

fn derive(f: Series) -> Series {
    series(move |out| {
        let mut dropped = false;
        for n in 1.. {
            out.put(|| {
                if !std::mem::replace(&mut dropped, true) {
                    f.next()?;
                }
                Ok(ratio(n, 1) * f.next()?)
            })?;
        }
        Ok(())
    })
}

/// The integral that begins with `constant`.
fn integrate(constant: Ratio, f: impl FnOnce() -> Series + Send + 'static) -> Series {
    series(move |out| {
        out.put(|| Ok(constant))?;
        let f = f();
        for n in 1.. {
            out.put(|| Ok(f.next()? / ratio(n, 1)))?;
        }
        Ok(())
    })
}

/// A series that is defined by itself: `body` gets the series that it returns.
fn tie(body: impl FnOnce(Series) -> Series + Send + 'static) -> Series {
    let (source, series) = ends();
    let (result, itself) = split(series);
    go(move || {
        let body = body(itself);
        while source.put(|| body.next()).is_ok() {}
    });
    result
}

/// `exp f`, for an `f` without a constant: the solution of `e' = e f'`.
fn exp(f: Series) -> Series {
    tie(move |e| integrate(ratio(1, 1), move || multiply(e, derive(f))))
}

/// `tan x`: the solution of `t' = 1 + t t`.
fn tangent() -> Series {
    tie(|t| {
        integrate(ratio(0, 1), || {
            let (t, again) = split(t);
            add(of(|n| ratio(i128::from(n == 0), 1)), multiply(t, again))
        })
    })
}

fn ones() -> Series {
    of(|_| ratio(1, 1))
}

fn ratios<const N: usize>(pairs: [(i128, i128); N]) -> Vec<Ratio> {
    pairs.map(|(n, d)| ratio(n, d)).into()
}

/// CH-18: sums, products, derivatives, exponentials and the tangent have their known first ten
/// coefficients.
#[test]
fn series_have_their_known_coefficients() {
    matrix::run(|| {
        let whole = |numbers: [i128; 10]| ratios(numbers.map(|n| (n, 1)));
        assert_eq!(ones().first(10), whole([1; 10]));
        assert_eq!(add(ones(), ones()).first(10), whole([2; 10]));
        let squares = multiply(ones(), ones());
        assert_eq!(squares.first(10), whole([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
        assert_eq!(derive(ones()).first(10), whole([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
        let integral = integrate(ratio(0, 1), ones);
        assert_eq!(integral.first(4), ratios([(0, 1), (1, 1), (1, 2), (1, 3)]));
        let e = exp(of(|n| ratio(i128::from(n == 1), 1)));
        let factorials = [1, 1, 2, 6, 24, 120, 720, 5040, 40_320, 362_880];
        assert_eq!(e.first(10), ratios(factorials.map(|n| (1, n))));
        let expected = [(0, 1), (1, 1), (0, 1), (1, 3), (0, 1), (2, 15), (0, 1), (17, 315), (0, 1)];
        let t = tangent().first(10);
        assert_eq!(t[..9], ratios(expected));
        assert_eq!(t[9], ratio(62, 2835));
    });
}

/// CH-18: a network whose readers are gone ends, to the last goroutine.
#[test]
fn networks_end_with_their_last_reader() {
    matrix::run(|| {
        let before = heist::num_goroutines();
        assert_eq!(multiply(multiply(ones(), ones()), ones()).first(6)[5], ratio(21, 1));
        matrix::yield_until("all have ended", || heist::num_goroutines() == before);
    });
}
