//! The forms in which a block is held: as the object sees it, packed as it is stored, or both.
//!
//! # Theory
//! A block that was packed well is held in both forms at first. It *cools* when its plain form is let go, and is *warmed* when somebody who needed it has unpacked it; when its
//! header gives up what it holds, that is for good. Each change happens whole or not at all, and says so, since whoever changes it answers for the room: of two who unpack the same block at the same
//! time one warms it, and nobody warms what was given up meanwhile.
//!
//! # Locks
//! The innermost: nothing is asked of anybody while it is held. A hit by a hand takes no other.

use crate::sync::Mutex;

/// What is held.
pub(crate) struct Held<B> {
    pub(crate) plain: Option<B>,
    pub(crate) packed: Option<B>,
}

/// What a reader gets.
pub(crate) enum Form<B> {
    Plain(B),
    /// To be unpacked by the reader.
    Packed(B),
    /// It was given up.
    Nothing,
}

/// See the module.
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

    /// The packed form, if it is held.
    pub(crate) fn packed(&self) -> Option<B> {
        self.0.lock().packed.clone()
    }

    /// Lets go of the plain form, where the packed one is held too.
    pub(crate) fn cool(&self) -> Option<B> {
        let mut held = self.0.lock();
        if held.packed.is_some() { held.plain.take() } else { None }
    }

    /// Holds the plain form beside the packed one; false if it is held already, or all was given up.
    pub(crate) fn warm(&self, plain: &B) -> bool {
        let mut held = self.0.lock();
        let warmed = held.packed.is_some() && held.plain.is_none();
        if warmed {
            held.plain = Some(plain.clone());
        }
        warmed
    }

    /// Holds another plain form instead of the one that is held; false if none is.
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
