//! Features that prevent an import.

use ondisk::feature::Feature;
use ondisk::{PoolConfig, mos};
use pool::Mos;
use pool::config::Features;

use crate::SpaError;
use crate::error::UnsupportedFeature;

/// First pool version with feature flags (`SPA_VERSION_FEATURES`).
pub(super) const SPA_VERSION_FEATURES: u64 = 5000;
/// Last version before feature flags (`SPA_VERSION_BEFORE_FEATURES`).
const SPA_VERSION_BEFORE_FEATURES: u64 = 28;

/// Whether a pool version can be read (`SPA_VERSION_IS_SUPPORTED`).
pub(super) fn version_supported(version: u64) -> bool {
    (1..=SPA_VERSION_BEFORE_FEATURES).contains(&version) || version == SPA_VERSION_FEATURES
}

/// Refuses a pool whose label names an unknown feature that is needed to read the MOS.
pub(super) fn check_label(label: &PoolConfig) -> Result<(), SpaError> {
    let features: Vec<_> = label
        .features_for_read
        .iter()
        .filter(|guid| !readable(guid))
        .map(|guid| UnsupportedFeature { guid: guid.clone(), description: String::new() })
        .collect();
    if features.is_empty() {
        Ok(())
    } else {
        Err(SpaError::UnsupportedFeatures { features, can_readonly: false })
    }
}

/// Refuses a pool with an active unknown feature that is needed to read it (`spa_features_check`).
pub(super) fn check_mos(mos: &Mos, features: &Features) -> Result<(), SpaError> {
    let unknown: Vec<_> = features
        .for_read
        .iter()
        .filter(|(guid, users)| **users != 0 && !readable(guid))
        .map(|(guid, _)| UnsupportedFeature { guid: guid.clone(), description: description(mos, guid) })
        .collect();
    if unknown.is_empty() {
        Ok(())
    } else {
        Err(SpaError::UnsupportedFeatures { features: unknown, can_readonly: false })
    }
}

/// The active, unknown features that are needed to write (`ZPOOL_CONFIG_UNSUP_FEAT` with
/// `ZPOOL_CONFIG_CAN_RDONLY`). They prevent a writable import.
pub(super) fn unknown_for_write(mos: &Mos, features: &Features) -> Vec<UnsupportedFeature> {
    features
        .for_write
        .iter()
        .filter(|(guid, users)| **users != 0 && Feature::by_guid(guid).is_none())
        .map(|(guid, _)| UnsupportedFeature { guid: guid.clone(), description: description(mos, guid) })
        .collect()
}

fn readable(guid: &str) -> bool {
    Feature::by_guid(guid).is_some_and(Feature::can_read)
}

/// The pool's description of a feature. It only improves the message, so a failed read is no error.
fn description(mos: &Mos, guid: &str) -> String {
    let zap = mos.dir(mos::FEATURE_DESCRIPTIONS).ok().flatten();
    zap.and_then(|zap| mos.string(zap, guid).ok().flatten()).unwrap_or_default()
}
