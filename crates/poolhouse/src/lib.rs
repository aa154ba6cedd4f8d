//! OpenZFS pools in user space: open a pool, its datasets, their files.
