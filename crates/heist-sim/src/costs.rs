//! What each step of the scheduler costs, in nanoseconds.
//!
//! The defaults were measured on the two-CPU virtual machine of docs/performance.md. Each row says
//! where its figure is from. A file with lines `name value` replaces some of them:
//! `heist sim --costs FILE`.

/// The costs. Times of the CPU that does the step, but for `wake_latency`, which passes elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    values: [u64; ROWS.len()],
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name in a file of costs.
    pub name: &'static str,
    /// The default, in nanoseconds.
    pub default_ns: u64,
    /// Where the default is from.
    pub source: &'static str,
}

macro_rules! costs {
    ($($name:ident = $default:literal, $source:literal;)*) => {
        /// The index of each row.
        #[allow(non_camel_case_types)]
        enum Index { $($name),* }

        /// All rows.
        pub const ROWS: &[Row] = &[
            $(Row { name: stringify!($name), default_ns: $default, source: $source }),*
        ];

        impl Costs {
            $(
                #[doc = $source]
                #[must_use]
                pub const fn $name(&self) -> u64 {
                    self.values[Index::$name as usize]
                }
            )*
        }
    };
}

costs! {
    switch = 31, "yield, performance.md: a switch to a goroutine and back with its queue operations";
    spawn = 78, "spawn, performance.md: 78 to 134 ns; the record, the stack and the push";
    ready = 30, "half a hop of `ring`, performance.md, without the switch; `park_ready` of micro";
    find = 10, "`queue_tail` of micro: 35 instructions, and the checks before it";
    lock = 25, "six locked instructions of 4 ns each for the scheduler lock and the lengths (costs.md)";
    mask = 2, "a load of a shared word that is in the cache, per P that a thief skips";
    look = 45, "a cache line of another CPU, one way: 36 to 53 ns (performance.md)";
    theft = 90, "two such lines for each theft: the head of the ring and a slot";
    stolen = 8, "`queue_steal_half` of micro: 32 instructions for each goroutine";
    migrate = 90, "a stolen goroutine touches two lines of another CPU (performance.md)";
    unpark = 2500, "a wake-up takes the waker a few microseconds (spinning.md)";
    park = 1200, "a sleep: a system call of 250 ns and the switch of the kernel";
    wake_latency = 40000, "about 40 us until the other CPU runs (spinning.md)";
    new_thread = 60000, "a thread that the helper makes, with its stack: an estimate";
    timer = 60, "a due entry is removed in 56 to 60 ns beside 100,000 others (timers.md)";
    signal = 3000, "a preemption signal and its handler: an estimate";
    cpu_slice = 3000000, "a turn of the kernel's scheduler when threads wait for a CPU";
    kernel_switch = 1500, "a switch between threads on one CPU: an estimate";
}

impl Costs {
    /// No step takes any time: the queue of a textbook.
    #[must_use]
    pub fn zero() -> Self {
        let mut costs = Self { values: [0; ROWS.len()] };
        costs.set("cpu_slice", 3_000_000).expect("the row exists");
        costs
    }

    /// Replaces one row.
    ///
    /// # Errors
    /// If there is no such row.
    pub fn set(&mut self, name: &str, ns: u64) -> Result<(), String> {
        let at = ROWS.iter().position(|row| row.name == name);
        let at = at.ok_or_else(|| format!("there is no cost `{name}`"))?;
        self.values[at] = ns;
        Ok(())
    }

    /// Replaces the rows that a text names: one `name value` a line, `#` begins a remark.
    ///
    /// # Errors
    /// With the number of the line that is wrong.
    pub fn read(&mut self, text: &str) -> Result<(), String> {
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let (Some(name), value) = (words.next(), words.next()) else { continue };
            let ns = value.and_then(|value| value.parse().ok());
            let ns = ns.ok_or_else(|| format!("line {number}: `{name}` needs a whole number"))?;
            self.set(name, ns).map_err(|problem| format!("line {number}: {problem}"))?;
        }
        Ok(())
    }
}

impl Default for Costs {
    fn default() -> Self {
        Self { values: std::array::from_fn(|at| ROWS[at].default_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_replaces_the_rows_it_names() {
        let mut costs = Costs::default();
        costs.read("# measured today\nlook 60\n\nunpark 3100 # futex\n").unwrap();
        assert_eq!((costs.look(), costs.unpark()), (60, 3100));
        assert_eq!(costs.switch(), Costs::default().switch());
    }

    #[test]
    fn a_wrong_line_is_named() {
        let mut costs = Costs::default();
        assert_eq!(costs.read("\nlooks 60"), Err("line 2: there is no cost `looks`".into()));
        assert!(costs.read("look many").is_err());
        assert!(costs.read("look").is_err());
    }
}
