//! Block devices: files, disks, and simulated ones.
