//! The `poolhouse` command, and the same binary under the names `zpool`, `zfs` and `zdb`.

fn main() {}
