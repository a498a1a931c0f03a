//! The random walks by which thieves visit the Ps.
//!
//! A walk with a step coprime to the number of Ps visits each P exactly once and costs no
//! permutation. Different seeds give different starts and steps, so thieves do not visit the Ps in
//! the same order.
//!
//! GO: proc.go randomOrder, randomEnum.

use crate::policy::Order;

/// The steps that are coprime to a number of Ps. Rebuilt when that number changes.
#[derive(Clone, Debug)]
#[doc(alias = "randomOrder")]
pub struct StealOrder {
    count: u32,
    coprimes: Vec<u32>,
}

impl StealOrder {
    /// The steps for `count` Ps.
    ///
    /// # Panics
    /// If `count` is zero: there is nothing to walk.
    #[must_use]
    pub fn new(count: u32) -> Self {
        assert!(count > 0, "StealOrder::new: no Ps to walk");
        Self { count, coprimes: (1..=count).filter(|&step| gcd(step, count) == 1).collect() }
    }

    /// How many different steps there are.
    #[must_use]
    pub fn n_steps(&self) -> u32 {
        self.coprimes.len() as u32
    }

    /// The walk for `seed`.
    #[must_use]
    pub fn walk(&self, order: Order, seed: u32) -> Walk {
        let step = match order {
            Order::Ring => 1,
            Order::Coprime => self.coprimes[(seed / self.count) as usize % self.coprimes.len()],
        };
        Walk { left: self.count, count: self.count, position: seed % self.count, step }
    }
}

/// One visit to every P, as an iterator over their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "randomEnum")]
pub struct Walk {
    left: u32,
    count: u32,
    position: u32,
    step: u32,
}

impl Walk {
    /// Where the walk starts and how far it steps.
    #[must_use]
    pub const fn start_and_step(&self) -> (u32, u32) {
        (self.position, self.step)
    }
}

impl Walk {
    /// The same visits in two rounds: first the Ps that are near, then the others.
    ///
    /// Both rounds follow the order of the walk, so thieves of one node do not visit their
    /// neighbours in the same order either.
    pub fn near_first(self, is_near: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        let mut walks = [self.clone(), self];
        std::iter::from_fn(move || {
            let [near, far] = &mut walks;
            near.find(|&id| is_near(id)).or_else(|| far.find(|&id| !is_near(id)))
        })
    }
}

impl Iterator for Walk {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let here = self.position;
        self.position = (self.position + self.step) % self.count;
        Some(here)
    }
}

const fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
