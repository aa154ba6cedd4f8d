//! Reads that nobody asked for.

use std::cell::Cell;

thread_local! {
    static GUESSING: Cell<bool> = const { Cell::new(false) };
    static DOUBTING: Cell<bool> = const { Cell::new(false) };
    static GLANCING: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this thread reads by pointers that may be out of date: that a block can't be read by one is no damage yet, and whoever reads so looks
/// again, without doubt, before he believes it. What single copies do wrong is noted as ever.
#[derive(Debug)]
pub struct Doubt {
    before: bool,
}

impl Doubt {
    /// Begins it.
    #[must_use]
    pub fn begin() -> Doubt {
        Doubt { before: DOUBTING.replace(true) }
    }

    /// Whether this thread does so.
    pub(crate) fn is_here() -> bool {
        DOUBTING.get()
    }
}

impl Drop for Doubt {
    fn drop(&mut self) {
        DOUBTING.set(self.before);
    }
}

/// While it lives, this thread reads blocks that it will [look at](crate::Zio::look): whoever returned wrong bytes of one that can be read is charged, and put right,
/// then, and not now as well.
#[derive(Debug)]
pub struct Glance {
    before: bool,
}

impl Glance {
    /// Begins it.
    #[must_use]
    pub fn begin() -> Glance {
        Glance { before: GLANCING.replace(true) }
    }

    pub(crate) fn is_here() -> bool {
        GLANCING.get()
    }
}

impl Drop for Glance {
    fn drop(&mut self) {
        GLANCING.set(self.before);
    }
}

/// While it lives, this thread reads what somebody may ask for later. That it can't be read is no damage, since the place may have become another's meanwhile:
/// who asks for it finds out (`ZIO_FLAG_SPECULATIVE`).
#[derive(Debug)]
pub struct Guess {
    before: bool,
}

impl Guess {
    /// Begins it.
    #[must_use]
    pub fn begin() -> Guess {
        Guess { before: GUESSING.replace(true) }
    }

    /// Whether this thread does so.
    pub fn is_here() -> bool {
        GUESSING.get()
    }
}

impl Drop for Guess {
    fn drop(&mut self) {
        GUESSING.set(self.before);
    }
}
