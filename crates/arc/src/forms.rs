//! The forms in which a block is held: uncompressed, compressed as stored, or both.
//!
//! # Theory
//! A block that compresses well is held in both forms at first. It *cools* when its plain,
//! uncompressed form is released. It is *warmed* when a reader that needed the plain form has
//! decompressed it. When its header gives up what it holds, that is final.
//!
//! Each change happens whole or not at all, and returns which. The caller of a change also accounts
//! for its memory. If two readers decompress the same block at once, one warms it. A block that was
//! given up meanwhile is not warmed.
//!
//! # Locks
//! The innermost: nothing is called while it is held. A hit by a hand takes no other.

use crate::sync::Mutex;

/// The forms that are held.
pub(crate) struct Held<B> {
    pub(crate) plain: Option<B>,
    pub(crate) packed: Option<B>,
}

/// What a reader gets.
pub(crate) enum Form<B> {
    Plain(B),
    /// To be decompressed by the reader.
    Packed(B),
    /// The block was given up.
    Nothing,
}

/// The forms of one block; see the module.
pub(crate) struct Forms<B>(Mutex<Held<B>>);

impl<B: Clone> Forms<B> {
    pub(crate) fn new(plain: B, packed: Option<B>) -> Self {
        Self(Mutex::new(Held { plain: Some(plain), packed }))
    }

    /// The plain form, if it is held.
    pub(crate) fn get(&self) -> Form<B> {
        let held = self.0.lock();
        match (&held.plain, &held.packed) {
            (Some(plain), _) => Form::Plain(plain.clone()),
            (None, Some(packed)) => Form::Packed(packed.clone()),
            (None, None) => Form::Nothing,
        }
    }

    /// The compressed form, if it is held.
    pub(crate) fn packed(&self) -> Option<B> {
        self.0.lock().packed.clone()
    }

    /// Releases the plain form, if the compressed one is held too.
    pub(crate) fn cool(&self) -> Option<B> {
        let mut held = self.0.lock();
        if held.packed.is_some() { held.plain.take() } else { None }
    }

    /// Holds the plain form beside the compressed one. Returns false if it is held already, or
    /// everything was given up.
    pub(crate) fn warm(&self, plain: &B) -> bool {
        let mut held = self.0.lock();
        let warmed = held.packed.is_some() && held.plain.is_none();
        if warmed {
            held.plain = Some(plain.clone());
        }
        warmed
    }

    /// Replaces the plain form; returns false if none is held.
    pub(crate) fn replace(&self, plain: &B) -> bool {
        let mut held = self.0.lock();
        if held.plain.is_some() {
            held.plain = Some(plain.clone());
        }
        held.plain.is_some()
    }

    /// Gives up everything, for good.
    pub(crate) fn give_up(&self) -> Held<B> {
        let mut held = self.0.lock();
        Held { plain: held.plain.take(), packed: held.packed.take() }
    }
}
