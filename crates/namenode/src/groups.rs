//! The groups of users: from configuration, else from the operating system, remembered for a while.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use hearth_types::Clock;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Users remembered at most.
const USERS_MAX: usize = 10_000;
/// A directory service that does not answer in this time answers nothing.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the absence of a user is remembered, and what was known before of one whom the system cannot tell about just now.
const NEGATIVE_LIFETIME: Duration = Duration::from_secs(30);
/// The system is asked about as many users at once.
const LOOKUPS_MAX: usize = 16;

/// What a user may do, as far as that is not a matter of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    pub groups: Arc<[String]>,
    pub superuser: bool,
}

/// The table of users seen.
pub struct Groups {
    /// The user who runs this process: a superuser.
    owner: String,
    /// Members are superusers.
    supergroup: String,
    /// `hadoop.user.group.static.mapping.overrides`.
    fixed: HashMap<String, Arc<[String]>>,
    lifetime: Duration,
    clock: Arc<dyn Clock>,
    /// Until when it holds. What held once is of use when nothing newer can be had.
    known: Mutex<HashMap<String, (Duration, Rights)>>,
    /// Users whom somebody asks about just now: others wait for that.
    in_flight: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    lookups: Semaphore,
}

/// What the system says of a user.
enum LookupResult {
    Groups(Vec<String>),
    /// There is none of that name.
    NoSuchUser,
    /// It could not be asked, or took too long.
    Failed,
}

/// Somebody asks about a user, or waits for who does.
struct LookupGuard<'a> {
    groups: &'a Groups,
    user: &'a str,
    /// `None` when it is over.
    turn: Option<Arc<tokio::sync::Mutex<()>>>,
}

impl Drop for LookupGuard<'_> {
    fn drop(&mut self) {
        let mut asking = self.groups.in_flight.lock();
        self.turn = None;
        // The table's own: nobody else waits.
        if asking.get(self.user).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            asking.remove(self.user);
        }
    }
}

impl Groups {
    /// `overrides`: `user=group1,group2;user2=;...`; `lifetime`: of what the system said.
    pub fn new(
        owner: String,
        supergroup: String,
        overrides: Option<&str>,
        lifetime: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let fixed = overrides.map(parse_overrides).unwrap_or_default();
        let (known, in_flight, lookups) = (Mutex::default(), Mutex::default(), Semaphore::new(LOOKUPS_MAX));
        Self { owner, supergroup, fixed, lifetime, clock, known, in_flight, lookups }
    }

    pub fn owner(&self) -> &str {
        &self.owner
    }

    pub fn supergroup(&self) -> &str {
        &self.supergroup
    }

    /// The rights of a user; one that nobody knows has no groups.
    pub async fn rights(&self, user: &str) -> Rights {
        if let Some(rights) = self.known(user) {
            return rights;
        }
        if let Some(groups) = self.fixed.get(user) {
            return self.note(user, groups.clone(), self.lifetime);
        }
        let asking = self.join_lookup(user);
        let _turn = match &asking.turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        if let Some(rights) = self.known(user) {
            return rights;
        }
        let briefly = NEGATIVE_LIFETIME.min(self.lifetime);
        match self.look_up(user).await {
            LookupResult::Groups(groups) => self.note(user, groups.into(), self.lifetime),
            LookupResult::NoSuchUser => self.note(user, [].into(), briefly),
            LookupResult::Failed => {
                let before = self.known.lock().get(user).map(|(_, rights)| rights.groups.clone());
                self.note(user, before.unwrap_or_default(), briefly)
            }
        }
    }

    /// What is remembered and still holds.
    fn known(&self, user: &str) -> Option<Rights> {
        let now = self.clock.monotonic();
        self.known.lock().get(user).filter(|(until, _)| now < *until).map(|(_, rights)| rights.clone())
    }

    fn join_lookup<'a>(&'a self, user: &'a str) -> LookupGuard<'a> {
        let turn = self.in_flight.lock().entry(user.to_owned()).or_default().clone();
        LookupGuard { groups: self, user, turn: Some(turn) }
    }

    async fn look_up(&self, user: &str) -> LookupResult {
        let told = async {
            let _place = self.lookups.acquire().await;
            ask_system(user).await
        };
        tokio::time::timeout(LOOKUP_TIMEOUT, told).await.unwrap_or_else(|_| {
            tracing::warn!(user, "the system takes too long to tell the groups of a user");
            LookupResult::Failed
        })
    }

    /// Remembers it for `lifetime`.
    fn note(&self, user: &str, groups: Arc<[String]>, lifetime: Duration) -> Rights {
        let superuser = user == self.owner || groups.contains(&self.supergroup);
        let rights = Rights { groups, superuser };
        let now = self.clock.monotonic();
        let mut known = self.known.lock();
        if known.len() >= USERS_MAX && !known.contains_key(user) {
            known.retain(|_, (until, _)| now < *until);
            let one = if known.len() >= USERS_MAX { known.keys().next().cloned() } else { None };
            one.and_then(|one| known.remove(&one));
        }
        known.insert(user.to_owned(), (now + lifetime, rights.clone()));
        rights
    }

    /// What the system said holds no more: the next call asks again.
    pub fn refresh(&self) {
        self.known.lock().values_mut().for_each(|(until, _)| *until = Duration::ZERO);
    }
}

fn parse_overrides(text: &str) -> HashMap<String, Arc<[String]>> {
    text.split(';')
        .filter_map(|entry| {
            let (user, groups) = entry.split_once('=').unwrap_or((entry, ""));
            let user = user.trim();
            let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned);
            (!user.is_empty()).then(|| (user.to_owned(), groups.collect()))
        })
        .collect()
}

/// Asks through `id`, as Hadoop's own shell mapping does: it sees every directory service the machine is set up for.
async fn ask_system(user: &str) -> LookupResult {
    if user.is_empty() || user.contains('\0') {
        return LookupResult::NoSuchUser;
    }
    let mut command = tokio::process::Command::new("id");
    command.args(["-Gn", "--", user]).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    match command.output().await {
        Ok(output) if output.status.success() => LookupResult::Groups(
            String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect(),
        ),
        Ok(_) => LookupResult::NoSuchUser,
        Err(error) => {
            tracing::warn!(user, %error, "cannot ask the system for the groups of a user");
            LookupResult::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::SystemClock;

    use super::*;

    fn groups(overrides: Option<&str>) -> Groups {
        let clock = Arc::new(SystemClock::new());
        Groups::new("hdfs".into(), "supergroup".into(), overrides, Duration::from_secs(300), clock)
    }

    #[tokio::test]
    async fn configured_groups_come_first() {
        let groups = groups(Some("bob=staff, wheel;carol=supergroup;dave=;;"));
        let bob = groups.rights("bob").await;
        assert_eq!(bob, Rights { groups: ["staff".to_owned(), "wheel".to_owned()].into(), superuser: false });
        assert!(groups.rights("carol").await.superuser);
        assert_eq!(groups.rights("dave").await.groups.len(), 0);
        assert!(groups.rights("hdfs").await.superuser);
    }

    #[tokio::test]
    async fn the_system_is_asked_and_strangers_have_no_groups() {
        let groups = groups(None);
        assert_eq!(&*groups.rights("root").await.groups, ["root".to_owned()]);
        assert_eq!(groups.rights("nobody-of-that-name; id").await.groups.len(), 0);
        assert_eq!(groups.rights("-u").await.groups.len(), 0);
    }
}
