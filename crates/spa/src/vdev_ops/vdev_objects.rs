//! The objects of the MOS that belong to a vdev: its ZAPs, space maps and dirty time logs.
//!
//! # See
//! OpenZFS `vdev_construct_zaps`, `vdev_metaslab_init`, `vdev_destroy_spacemaps`.

use dmu::Tx;
use ondisk::config::AllocBias;
use ondisk::feature::Feature;
use ondisk::{ObjNum, Psize, VdevConfig, VdevId, VdevKind, mos};
use pool::Mos;
use pool::alloc::Allocator;
use pool::metaslab::TopVdev;
use vdev::Tree;

/// The block size for which a vdev's space is calculated; here only its metaslabs matter.
const ANY_BLOCK: u64 = 1 << 17;
/// `org.openzfs:draid`.
const DRAID: &str = "org.openzfs:draid";

/// `org.zfsonlinux:allocation_classes`: there are vdevs for special and dedup blocks.
const ALLOCATION_CLASSES: &str = "org.zfsonlinux:allocation_classes";
/// `com.klarasystems:vdev_zaps_v2`: the root vdev has a ZAP too.
const AVZ_V2: &str = "com.klarasystems:vdev_zaps_v2";
/// Creates the MOS objects of new top-level vdevs and opens these to the allocator
/// (`vdev_construct_zaps`, `vdev_metaslab_init`).
///
/// The object numbers go into the config. Returns the bytes that the vdevs add, as file systems see
/// them.
///
/// # Errors
/// * [`pool::Error`]: the MOS cannot be read or changed.
pub(crate) fn add_vdevs(
    mos: &Mos,
    tx: &Tx,
    tree: &Tree,
    allocator: &Allocator,
    root: &mut VdevConfig,
) -> pool::Result<u64> {
    let feature = |guid| Feature::by_guid(guid).expect("it is in the table");
    if root.root_zap.is_none() && mos.feature_enabled(AVZ_V2)? {
        root.root_zap = Some(mos.create_vdev_zap(tx)?);
        mos.feature_incr(tx, feature(AVZ_V2))?;
    }
    let mut room = 0;
    for top in root.children.iter_mut().filter(|t| t.metaslab_array.is_none()) {
        if matches!(top.kind, VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing) {
            continue;
        }
        let zap = mos.create_vdev_zap(tx)?;
        top.top_zap = Some(zap);
        if let Some(bias) = top.alloc_bias {
            let name = match bias {
                AllocBias::Log => "log",
                AllocBias::Special => "special",
                AllocBias::Dedup => "dedup",
            };
            mos.set_string(tx, zap, mos::VDEV_TOP_ALLOCATION_BIAS, name)?;
            if bias != AllocBias::Log {
                mos.feature_incr(tx, feature(ALLOCATION_CLASSES))?;
            }
        }
        if top.kind == VdevKind::Draid {
            mos.feature_incr(tx, feature(DRAID))?;
        }
        give_leaf_zaps(mos, tx, top)?;
        // The array's object number is known only after the vdev is described.
        top.metaslab_array = Some(ObjNum(0));
        let block = tree
            .psize_to_asize(VdevId(top.id as u32), Psize(1 << 17), tx.txg())
            .expect("a new vdev can hold a block");
        let described = TopVdev::from_config(mos, top, block.0)?.expect("a new vdev has metaslabs");
        top.metaslab_array = Some(allocator.create(tx, mos, &described)?);
        if described.class == pool::metaslab::Class::Normal {
            room += described.deflate(described.space());
        }
    }
    Ok(room)
}

fn give_leaf_zaps(mos: &Mos, tx: &Tx, vdev: &mut VdevConfig) -> pool::Result<()> {
    if vdev.kind.is_leaf() {
        if vdev.leaf_zap.is_none() {
            vdev.leaf_zap = Some(mos.create_vdev_zap(tx)?);
        }
        return Ok(());
    }
    vdev.children.iter_mut().try_for_each(|c| give_leaf_zaps(mos, tx, c))
}

/// Destroys what the MOS keeps of a vdev, and of all below it.
// Recursion as deep as the tree, whose depth was checked when it was built.
pub(crate) fn forget(mos: &Mos, tx: &Tx, vdev: &VdevConfig) -> pool::Result<()> {
    if let Some(zap) = vdev.leaf_zap {
        mos.destroy_vdev_zap(tx, zap)?;
    }
    if let Some(dtl) = vdev.dtl {
        mos.destroy_space_map(tx, dtl)?;
    }
    vdev.children.iter().try_for_each(|child| forget(mos, tx, child))?;
    if let Some(top) = TopVdev::from_config(mos, vdev, ANY_BLOCK)? {
        for object in mos.metaslab_objects(&top)?.into_iter().filter(|o| *o != 0) {
            mos.destroy_space_map(tx, ObjNum(object))?;
        }
        mos.objset().free_object(tx, top.ms_array)?;
    }
    if let Some(zap) = vdev.top_zap {
        if let Some(flushed) = mos.u64(zap, mos::VDEV_TOP_MS_UNFLUSHED_PHYS_TXGS)? {
            mos.objset().free_object(tx, ObjNum(flushed))?;
        }
        mos.destroy_vdev_zap(tx, zap)?;
    }
    Ok(())
}
