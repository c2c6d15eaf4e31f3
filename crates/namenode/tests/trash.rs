//! Trash of all users, which the NameNode empties itself.

mod support;

use std::sync::Arc;
use std::time::Duration;

use hearth_namenode::trash::{TrashSettings, empty};
use hearth_testkit::eventually;
use hearth_types::{Calendar, Clock, ManualClock, SystemClock};
use support::*;

const HOUR: Duration = Duration::from_secs(3600);

async fn names(n: &TestNamenode, path: &str) -> Vec<String> {
    n.list(path, "").await.unwrap().unwrap_or_default()
}

#[tokio::test]
async fn trash_becomes_checkpoint_and_expires() {
    // A whole second, because checkpoint names have this resolution.
    let clock = Arc::new(ManualClock::at(1_795_245_342_000));
    // This NameNode empties no trash by itself.
    let n = TestNamenode::start_with(configuration(), clock.clone()).await;
    let on = configuration().with("fs.trash.interval", "120");
    let settings = TrashSettings::read(&on).unwrap().expect("trash is on");
    assert_eq!((settings.age, settings.every), (2 * HOUR, 2 * HOUR));
    for path in ["/user/ann/.Trash/Current/d", "/user/bob/.Trash/Current", "/user/bob/.Trash/mine", "/user/eve"] {
        n.mkdirs(path).await.unwrap();
    }
    // The NameNode may read it, whatever its owner and mode.
    n.mkdirs_as("root", "/user/ann/.Trash/Current/d/f", 0o700, true).await.unwrap();
    let round = async || empty(n.handle().namenode(), &settings).await;

    round().await;
    let first = Calendar::local(clock.wall_ms()).compact();
    assert_eq!(names(&n, "/user/ann/.Trash").await, [first.as_str()]);
    assert_eq!(names(&n, &format!("/user/ann/.Trash/{first}/d")).await, ["f"]);
    assert_eq!(names(&n, "/user/bob/.Trash").await, [first.as_str(), "mine"]);
    assert!(names(&n, "/user/eve").await.is_empty());

    // A checkpoint in the same second gets a name of its own.
    n.mkdirs("/user/ann/.Trash/Current/again").await.unwrap();
    round().await;
    assert_eq!(names(&n, "/user/ann/.Trash").await, [first.clone(), format!("{first}-1")]);
    // A checkpoint of exactly the maximum age is kept.
    clock.advance(2 * HOUR);
    n.mkdirs("/user/ann/.Trash/Current/later").await.unwrap();
    round().await;
    assert_eq!(names(&n, "/user/ann/.Trash").await.len(), 3);
    clock.advance(Duration::from_secs(1));
    round().await;
    let left = names(&n, "/user/ann/.Trash").await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(names(&n, &format!("/user/ann/.Trash/{}", left[0])).await, ["later"]);
    assert_eq!(names(&n, "/user/bob/.Trash").await, ["mine"]);
}

#[tokio::test]
async fn trash_is_emptied_only_if_enabled() {
    assert!(TrashSettings::read(&configuration()).unwrap().is_none());
    let clock = Arc::new(SystemClock::new());
    let configuration = configuration().with("fs.trash.interval", "60").with("fs.trash.checkpoint.interval", "1s");
    let n = TestNamenode::start_with(configuration, clock).await;
    n.mkdirs("/user/ann/.Trash/Current/d").await.unwrap();
    let made = eventually("a checkpoint", async || {
        let made = names(&n, "/user/ann/.Trash").await;
        (made != ["Current"]).then_some(made)
    })
    .await;
    let [checkpoint] = &made[..] else { panic!("{made:?}") };
    assert!(Calendar::checkpoint_ms(checkpoint).is_some(), "{checkpoint}");
}
