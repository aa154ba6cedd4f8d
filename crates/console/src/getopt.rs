//! Options, read as GNU `getopt_long` reads them.
//!
//! # Theory
//! OpenZFS's commands parse their options with `getopt_long`, and scripts use all of its grammar:
//!
//! * clusters of short options (`-Hp`);
//! * an argument that is joined to its option (`-oname`);
//! * options after operands, unless `POSIXLY_CORRECT` is set;
//! * `--` as the end of the options;
//! * long names shortened to a unique prefix.
//!
//! [`Getopt`] is an iterator with the same grammar. It yields the options in order, and returns the
//! operands at the end.

#[cfg(test)]
mod tests;

/// A long option (`struct option`).
#[derive(Debug, Clone, Copy)]
pub struct Long {
    /// The name, without the dashes.
    pub name: &'static str,
    /// The option that the reader reports for this name.
    pub val: Opt,
    /// Whether the option takes an argument.
    pub arg: bool,
}

/// The identity of an option: its letter, or a name if it has no letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opt {
    /// A letter.
    Short(char),
    /// A long option that has no letter.
    Named(&'static str),
}

/// One result of reading a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// An option, with its argument if it takes one.
    Is(Opt, String),
    /// An option that the grammar lacks, with its letter; `'\0'` for an unknown long one
    /// (`optopt`).
    Invalid(char),
    /// An option without its argument.
    Missing(char),
}

/// Reads the options of one command line (`getopt_long`).
pub struct Getopt<'a> {
    args: &'a [String],
    short: &'static str,
    long: &'static [Long],
    next: usize,
    cluster: Vec<char>,
    operands: Vec<String>,
    /// Whether the first operand ends the options.
    ordered: bool,
}

impl<'a> Getopt<'a> {
    /// A reader of `args` (without the command's name).
    ///
    /// `short` is a `getopt` string such as `ab:c`; `long` lists the long options.
    pub fn new(args: &'a [String], short: &'static str, long: &'static [Long]) -> Self {
        let ordered = std::env::var_os("POSIXLY_CORRECT").is_some();
        Self { args, short, long, next: 0, cluster: Vec::new(), operands: Vec::new(), ordered }
    }

    /// Reads the options that are left, and returns the operands.
    pub fn operands(mut self) -> Vec<String> {
        while self.next().is_some() {}
        self.operands
    }

    /// The word that was read last: that of an option, or its argument.
    pub fn word(&self) -> &'a str {
        self.next.checked_sub(1).and_then(|at| self.args.get(at)).map_or("", String::as_str)
    }

    fn takes_arg(&self, c: char) -> Option<bool> {
        if c == ':' {
            return None;
        }
        let at = self.short.find(c)?;
        Some(self.short[at + 1..].starts_with(':'))
    }

    fn short(&mut self) -> Found {
        let c = self.cluster.remove(0);
        match self.takes_arg(c) {
            None => Found::Invalid(c),
            Some(false) => Found::Is(Opt::Short(c), String::new()),
            Some(true) if !self.cluster.is_empty() => {
                Found::Is(Opt::Short(c), self.cluster.drain(..).collect())
            }
            Some(true) => match self.args.get(self.next) {
                Some(arg) => {
                    self.next += 1;
                    Found::Is(Opt::Short(c), arg.clone())
                }
                None => Found::Missing(c),
            },
        }
    }

    fn long(&mut self, word: &str) -> Found {
        let (name, value) = match word.split_once('=') {
            Some((n, v)) => (n, Some(v.to_owned())),
            None => (word, None),
        };
        let exact = self.long.iter().find(|l| l.name == name);
        let mut close = self.long.iter().filter(|l| l.name.starts_with(name));
        let found = exact.or_else(|| match (close.next(), close.next()) {
            (Some(one), None) => Some(one),
            _ => None,
        });
        let Some(l) = found else { return Found::Invalid('\0') };
        let letter = match l.val {
            Opt::Short(c) => c,
            Opt::Named(_) => '\0',
        };
        match (l.arg, value) {
            (false, None) => Found::Is(l.val, String::new()),
            (false, Some(_)) => Found::Invalid(letter),
            (true, Some(v)) => Found::Is(l.val, v),
            (true, None) => match self.args.get(self.next) {
                Some(arg) => {
                    self.next += 1;
                    Found::Is(l.val, arg.clone())
                }
                None => Found::Missing(letter),
            },
        }
    }
}

impl Iterator for Getopt<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        if !self.cluster.is_empty() {
            return Some(self.short());
        }
        loop {
            let word = self.args.get(self.next)?;
            self.next += 1;
            if word == "--" {
                self.operands.extend(self.args[self.next..].iter().cloned());
                self.next = self.args.len();
            } else if let (Some(name), false) = (word.strip_prefix("--"), self.long.is_empty()) {
                let name = name.to_owned();
                return Some(self.long(&name));
            } else if word.len() > 1 && word.starts_with('-') {
                self.cluster = word.chars().skip(1).collect();
                return Some(self.short());
            } else {
                self.operands.push(word.clone());
                if self.ordered {
                    self.operands.extend(self.args[self.next..].iter().cloned());
                    self.next = self.args.len();
                }
            }
        }
    }
}
