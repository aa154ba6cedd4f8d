//! The block pipeline: block pointer to verified bytes and back.
