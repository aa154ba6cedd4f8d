//! The vdev tree: leaves, mirrors, RAID-Z, dRAID, labels, reconstruction.
