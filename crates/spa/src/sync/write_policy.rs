//! How the MOS's blocks are stored.
//!
//! All of them are metadata, and the pool is lost with them: three copies, Fletcher-4, compressed
//! (`dmu_write_policy` for the MOS).

use codec::compress::ZstdLevel;
use ondisk::feature::Feature;
use ondisk::{ChecksumKind, CompressKind};
use zio::{ClassHint, WritePolicy};

use crate::sync::PoolSync;

/// Features that decide how the MOS is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MosFeatures {
    lz4: bool,
    embed: bool,
    pub(crate) hole_birth: bool,
}

impl PoolSync {
    pub(crate) fn mos_features(&self) -> pool::Result<MosFeatures> {
        let active = |guid| {
            let feature = Feature::by_guid(guid).expect("it is in the table");
            Ok::<_, pool::Error>(self.core.sync_mos.feature_refcount(feature)?.is_some_and(|n| n > 0))
        };
        Ok(MosFeatures {
            lz4: active("org.illumos:lz4_compress")?,
            embed: active("com.delphix:embedded_data")?,
            hole_birth: active("com.delphix:hole_birth")?,
        })
    }

    pub(crate) fn mos_policy(&self, features: MosFeatures) -> WritePolicy {
        let compress = if features.lz4 { CompressKind::Lz4 } else { CompressKind::Lzjb };
        WritePolicy {
            compress,
            zstd: ZstdLevel::DEFAULT,
            checksum: ChecksumKind::Fletcher4,
            copies: 3,
            dedup: false,
            verify: false,
            nopwrite: false,
            encrypt: false,
            embed: features.embed,
            hole_birth: features.hole_birth,
            class: ClassHint::default(),
        }
    }
}
