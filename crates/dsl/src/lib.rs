//! Datasets: directories, snapshots, clones, bookmarks, properties, keys.
