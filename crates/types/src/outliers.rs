//! Outliers among the latencies of several DataNodes or disks, and reports about them.

use std::collections::BTreeMap;

/// An outlier is this many times as slow as the median.
const MEDIAN_MULTIPLIER: f64 = 3.0;
/// An outlier is this many deviations above the median.
const DEVIATION_MULTIPLIER: f64 = 3.0;
/// Factor from the median of absolute deviations to the standard deviation of a normal distribution.
const MAD_MULTIPLIER: f64 = 1.4826;

/// A resource that is much slower than the others of its kind.
#[derive(Clone, PartialEq, Debug)]
pub struct Outlier {
    pub name: String,
    /// Its mean latency in milliseconds.
    pub latency_ms: f64,
    /// Median over all resources.
    pub median_ms: f64,
    /// Median of the absolute deviations from `median_ms`, scaled to a standard deviation.
    pub deviation_ms: f64,
    /// Latency above which a resource is an outlier.
    pub limit_ms: f64,
}

/// A directory of a DataNode whose disk is much slower than those of its other directories. Latencies in milliseconds;
/// `None` where the disk is no outlier.
#[derive(Clone, PartialEq, Debug)]
pub struct SlowDisk {
    pub directory: String,
    pub metadata_ms: Option<f64>,
    pub read_ms: Option<f64>,
    pub write_ms: Option<f64>,
}

/// Finds the outliers among mean latencies. Returns none for fewer than `resources_min` resources, and none of at most
/// `low_ms` milliseconds.
///
/// Source: Hadoop's `OutlierDetector`.
pub fn find_outliers(latencies_ms: &BTreeMap<String, f64>, resources_min: usize, low_ms: f64) -> Vec<Outlier> {
    let sorted = |values: &mut dyn Iterator<Item = f64>| {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let values = sorted(&mut latencies_ms.values().copied());
    if values.is_empty() || values.len() < resources_min {
        return Vec::new();
    }
    let median_ms = median(&values);
    let deviation_ms = MAD_MULTIPLIER * median(&sorted(&mut values.iter().map(|value| (value - median_ms).abs())));
    let limit_ms = low_ms.max(median_ms * MEDIAN_MULTIPLIER).max(median_ms + DEVIATION_MULTIPLIER * deviation_ms);
    let outliers = latencies_ms.iter().filter(|(_, latency_ms)| **latency_ms > limit_ms);
    outliers
        .map(|(name, latency_ms)| Outlier {
            name: name.clone(),
            latency_ms: *latency_ms,
            median_ms,
            deviation_ms,
            limit_ms,
        })
        .collect()
}

/// Returns the median of sorted values, of which there is at least one.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(latencies_ms: &[f64], resources_min: usize, low_ms: f64) -> Vec<String> {
        let named = latencies_ms.iter().enumerate().map(|(number, latency)| (format!("r{number}"), *latency));
        let found = find_outliers(&named.collect(), resources_min, low_ms);
        found.into_iter().map(|outlier| outlier.name).collect()
    }

    #[test]
    fn one_slow_resource_of_many_is_found() {
        let latencies = [1.0, 1.1, 0.9, 1.0, 50.0];
        assert_eq!(names(&latencies, 5, 5.0), ["r4"]);
        // Too few to compare, or not slow enough to matter.
        assert!(names(&latencies, 6, 5.0).is_empty());
        assert!(names(&latencies, 5, 50.0).is_empty());
        assert!(names(&[], 0, 0.0).is_empty());
    }

    #[test]
    fn limit_follows_from_median_and_deviation() {
        // Three times the median decides: nothing deviates in the middle.
        let same: BTreeMap<String, f64> = [("a", 10.0), ("b", 10.0), ("c", 10.0), ("d", 31.0)]
            .into_iter()
            .map(|(name, latency)| (name.to_owned(), latency))
            .collect();
        let found = find_outliers(&same, 1, 0.0);
        assert_eq!((found.len(), found[0].median_ms, found[0].limit_ms), (1, 10.0, 30.0));
        // With latencies that differ widely, none stands out.
        assert!(names(&[1.0, 10.0, 20.0, 30.0, 60.0], 5, 0.0).is_empty());
        assert_eq!(median(&[1.0, 2.0, 3.0, 10.0]), 2.5);
    }
}
