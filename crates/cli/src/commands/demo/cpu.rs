//! CPU seconds of processes, from `/proc`.

use std::fs;

/// User and system seconds that a running process has used so far, in units of 10 ms. `None` if the process is gone.
pub fn of_process(pid: u32) -> Option<f64> {
    let fields = stat_fields(&format!("/proc/{pid}/stat"))?;
    Some(seconds(fields.first()? + fields.get(1)?))
}

/// utime and stime in ticks. Source: proc(5), fields 14 and 15.
fn stat_fields(path: &str) -> Option<Vec<u64>> {
    let stat = fs::read_to_string(path).ok()?;
    // The second field, the name in parentheses, may itself contain spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().skip(11).take(2).map(|field| field.parse().ok()).collect()
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_this_process_grows() {
        let before = of_process(std::process::id()).unwrap();
        let mut sum = 0u64;
        let start = std::time::Instant::now();
        while of_process(std::process::id()).unwrap() <= before {
            assert!(start.elapsed().as_secs() < 120, "no time was used in two minutes");
            for _ in 0..1_000_000 {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
        }
        assert!(of_process(u32::MAX).is_none());
    }
}
