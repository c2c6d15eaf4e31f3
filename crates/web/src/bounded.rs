//! TCP listener with limits on the number of open connections, in total and per client address. It also closes idle
//! connections, and those whose client takes too long to receive an answer.
//!
//! At a limit, an idle connection is closed in favour of the newest: first those that have not sent a whole request
//! yet, then those without traffic for a while. `ConnectionLimit` of `hearth-fabric` limits the other ports. This crate
//! may not use it, and needs another measure: there a connection is idle between requests, here without traffic.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};

/// Idle time after which a connection that has sent a request may be closed in favour of a new one.
const IDLE_MIN: Duration = Duration::from_secs(5);

/// With fewer than this number of connections without a request, idle connections with a request are closed before
/// them. Otherwise new connections would compete for a single place when all others are taken.
const FEW: usize = 16;

pub(crate) struct BoundedListener {
    pub listener: TcpListener,
    pub places: Arc<ConnectionLimit>,
    /// A connection without traffic for this time is closed. Longer than the time that a page may take.
    pub idle_timeout: Duration,
}

/// Accepted connection, its client's address, and the channel that signals it to close in favour of a new one.
pub(crate) type Accepted = (BoundedStream, SocketAddr, oneshot::Receiver<()>);

impl BoundedListener {
    /// Accepts the next connection that the limits admit.
    pub async fn accept(&mut self) -> Accepted {
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Either the client is already gone, or file descriptors have run out: closing an idle connection
                    // frees one.
                    tracing::warn!(%error, "cannot accept a web connection");
                    self.places.shed();
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            match self.places.admit(peer.ip()) {
                Some((place, gives_way)) => {
                    return (BoundedStream::new(stream, place, self.idle_timeout), peer, gives_way);
                }
                None => {
                    tracing::debug!(%peer, "refusing a web connection: no connection in its scope is idle")
                }
            }
        }
    }
}

/// Limit on the number of open connections.
pub(crate) struct ConnectionLimit {
    most: usize,
    /// Maximum number of connections per address.
    share: usize,
    began: Instant,
    taken: Mutex<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    places: HashMap<u64, Entry>,
    next: u64,
}

struct Entry {
    address: IpAddr,
    activity: Activity,
    give_way: oneshot::Sender<()>,
}

/// Activity of a connection.
#[derive(Clone)]
pub(crate) struct Activity {
    began: Instant,
    /// Microseconds from `began` to the last traffic. For a connection without a request: to its acceptance.
    moved: Arc<AtomicU64>,
    has_request: Arc<AtomicBool>,
    work: InFlight,
}

/// Permit of an open connection. Dropping it releases the place.
pub(crate) struct ConnectionPermit {
    places: Arc<ConnectionLimit>,
    number: u64,
    pub activity: Activity,
}

impl ConnectionLimit {
    pub fn new(most: usize, share: usize) -> Arc<Self> {
        Arc::new(Self { most, share, began: Instant::now(), taken: Mutex::default() })
    }

    /// Admits a connection from `address`. Returns `None` if a limit is reached and no connection in its scope is idle.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<(ConnectionPermit, oneshot::Receiver<()>)> {
        let now = Instant::now();
        let mut taken = self.taken.lock();
        let of_address = taken.places.values().filter(|entry| entry.address == address).count();
        if of_address >= self.share {
            taken.make_room(Some(address), now)?;
        } else if taken.places.len() >= self.most {
            taken.make_room(None, now)?;
        }
        let number = taken.next;
        taken.next += 1;
        let activity = Activity::new(self.began, now);
        let (give_way, gives_way) = oneshot::channel();
        taken.places.insert(number, Entry { address, activity: activity.clone(), give_way });
        drop(taken);
        Some((ConnectionPermit { places: self.clone(), number, activity }, gives_way))
    }

    /// Closes an idle connection, if there is any.
    fn shed(&self) {
        self.taken.lock().make_room(None, Instant::now());
    }
}

impl OpenConnections {
    /// Closes an idle connection, one of `address` if that is given. Returns `None` if every connection is at work.
    fn make_room(&mut self, address: Option<IpAddr>, now: Instant) -> Option<()> {
        let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
        for entry in self.places.values() {
            *of_address.entry(entry.address).or_default() += 1;
        }
        let in_scope = |entry: &Entry| address.is_none_or(|address| address == entry.address);
        let has_request = |entry: &Entry| entry.activity.has_request.load(Ordering::Relaxed);
        let without = self.places.values().filter(|entry| in_scope(entry) && !has_request(entry)).count();
        let known_first = without < FEW;
        let idle = self.places.iter().filter_map(|(number, entry)| {
            let idle = entry.activity.idle(now).filter(|_| in_scope(entry))?;
            let known = has_request(entry);
            let may = !known || idle >= IDLE_MIN;
            may.then_some(((known == known_first, of_address[&entry.address], idle), *number))
        });
        // The oldest among equal ones.
        let (_, number) = idle.max_by_key(|(key, number)| (*key, Reverse(*number)))?;
        let entry = self.places.remove(&number)?;
        // Its task may be about to end by itself, so a failure to send does not matter.
        let _ = entry.give_way.send(());
        Some(())
    }
}

impl Activity {
    fn new(began: Instant, now: Instant) -> Self {
        let this = Self { began, moved: Arc::default(), has_request: Arc::default(), work: InFlight::default() };
        this.moved_at(now);
        this
    }

    /// Notes that the head of a request has arrived.
    pub fn has_request(&self) {
        self.has_request.store(true, Ordering::Relaxed);
    }

    fn moved_at(&self, now: Instant) {
        let micros = now.saturating_duration_since(self.began).as_micros();
        self.moved.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Notes traffic on the connection.
    fn moved(&self, now: Instant) {
        if self.has_request.load(Ordering::Relaxed) {
            self.moved_at(now);
        }
    }

    /// Returns the idle time, or `None` while the server works for the client.
    fn idle(&self, now: Instant) -> Option<Duration> {
        let moved = self.began + Duration::from_micros(self.moved.load(Ordering::Relaxed));
        let since = self.work.last().map_or(moved, |at_work| at_work.max(moved));
        (!self.work.is_running()).then(|| now.saturating_duration_since(since))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.places.taken.lock().places.remove(&self.number);
    }
}

/// Time by which the client must have received the whole answer, or the next part of a download, if there is a limit.
#[derive(Clone, Default)]
pub(crate) struct Deadline(Arc<Mutex<Option<Instant>>>);

impl Deadline {
    pub fn set(&self, due: Option<Instant>) {
        *self.0.lock() = due;
    }

    pub fn get(&self) -> Option<Instant> {
        *self.0.lock()
    }
}

/// Tracks the server's work for a connection, so that the wait for it does not count as the client's idle time.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<Mutex<InFlightState>>);

#[derive(Debug, Default)]
struct InFlightState {
    /// Number of operations in progress for the client.
    running: usize,
    /// End of the last operation.
    ended: Option<Instant>,
}

impl InFlight {
    /// Runs `work`, which must have a time-out of its own. While it runs, the connection is not closed for lack of
    /// traffic.
    pub async fn track<F: Future>(&self, work: F) -> F::Output {
        let _running = InFlightGuard::new(self);
        work.await
    }

    /// Returns the latest time at which an operation is known to have been in progress.
    fn last(&self) -> Option<Instant> {
        let at_work = self.0.lock();
        if at_work.running > 0 { Some(Instant::now()) } else { at_work.ended }
    }

    fn is_running(&self) -> bool {
        self.0.lock().running > 0
    }
}

struct InFlightGuard<'a>(&'a InFlight);

impl<'a> InFlightGuard<'a> {
    fn new(work: &'a InFlight) -> Self {
        work.0.lock().running += 1;
        Self(work)
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        let mut at_work = self.0.0.lock();
        at_work.running -= 1;
        at_work.ended = Some(Instant::now());
    }
}

pub(crate) struct BoundedStream {
    stream: TcpStream,
    idle_timeout: Duration,
    /// Time of the last traffic, or of the last work of the server that the client had to wait for.
    moved: Instant,
    due: Deadline,
    /// A write is pending. The deadline applies only then, not while waiting for the client's next request.
    is_writing: bool,
    /// Wakes at the idle time-out or the deadline, whichever is earlier.
    timer: Pin<Box<Sleep>>,
    place: ConnectionPermit,
}

impl BoundedStream {
    fn new(stream: TcpStream, place: ConnectionPermit, idle_timeout: Duration) -> Self {
        let timer = Box::pin(sleep(idle_timeout));
        Self { stream, idle_timeout, moved: Instant::now(), due: Deadline::default(), is_writing: false, timer, place }
    }

    pub fn due(&self) -> Deadline {
        self.due.clone()
    }

    pub fn work(&self) -> InFlight {
        self.place.activity.work.clone()
    }

    pub fn activity(&self) -> Activity {
        self.place.activity.clone()
    }

    /// Passes on a ready result. Returns a time-out error if nothing is ready within the idle time-out, or by the
    /// deadline while writing.
    fn watch<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.moved = Instant::now();
            self.place.activity.moved(self.moved);
        } else if let Some(at_work) = self.place.activity.work.last() {
            self.moved = self.moved.max(at_work);
        }
        let idle = self.moved + self.idle_timeout;
        let due = self.due.get().filter(|_| self.is_writing);
        let until = due.map_or(idle, |due| due.min(idle));
        match polled {
            Poll::Ready(_) if self.moved >= until => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => {
                if self.timer.deadline() != until {
                    self.timer.as_mut().reset(until);
                }
                self.timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    fn watch_write(&mut self, polled: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.is_writing = true;
        let watched = self.watch(polled, cx);
        self.is_writing = watched.is_pending();
        watched
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, into);
        self.watch(polled, cx)
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, from);
        self.watch_write(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, from);
        self.watch_write(polled, cx)
    }

    /// Without vectored writes, each body would be copied behind its head.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;

    use super::*;

    async fn listen(places: Arc<ConnectionLimit>, idle_timeout: Duration) -> (BoundedListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (BoundedListener { listener, places, idle_timeout }, address)
    }

    #[tokio::test]
    async fn silent_connection_times_out_and_frees_its_place() {
        let places = ConnectionLimit::new(1, 1);
        let (mut bounded, address) = listen(places.clone(), Duration::from_millis(100)).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GE").await.unwrap();
        let (mut stream, _, _gives_way) = bounded.accept().await;
        let mut bytes = [0; 2];
        stream.read_exact(&mut bytes).await.unwrap();
        assert_eq!(places.taken.lock().places.len(), 1);
        // No bytes arrive from here on, so the runtime's clock may leap to the next time-out.
        tokio::time::pause();
        let error = stream.read(&mut bytes).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(stream);
        assert!(places.taken.lock().places.is_empty());
    }

    #[tokio::test]
    async fn connection_with_work_is_not_idle() {
        let (mut bounded, address) = listen(ConnectionLimit::new(1, 1), Duration::from_millis(100)).await;
        let _client = TcpStream::connect(address).await.unwrap();
        let (mut stream, _, _gives_way) = bounded.accept().await;
        let work = stream.work();
        // No bytes arrive from here on, so the runtime's clock may leap to the next time-out.
        tokio::time::pause();
        let began = Instant::now();
        // The work takes five times the idle timeout.
        let working = tokio::spawn(async move { work.track(sleep(Duration::from_millis(500))).await });
        let error = stream.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(working.is_finished());
        let waited = began.elapsed().as_millis();
        assert!((600..610).contains(&waited), "{waited} ms");
    }

    #[tokio::test]
    async fn deadline_ends_an_active_connection() {
        let (mut bounded, address) = listen(ConnectionLimit::new(1, 1), Duration::from_secs(60)).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut stream, _, _gives_way) = bounded.accept().await;
        stream.due().set(Some(Instant::now() + Duration::from_millis(200)));
        let answering = async {
            let part = vec![0; 1 << 20];
            loop {
                if let Err(error) = stream.write_all(&part).await {
                    return error.kind();
                }
            }
        };
        let taking = async {
            let mut bytes = vec![0; 64 << 10];
            while client.read_exact(&mut bytes).await.is_ok() {
                // The pace of a slow client.
                sleep(Duration::from_millis(5)).await;
            }
        };
        let ending = async {
            tokio::select! {
                kind = answering => kind,
                () = taking => panic!("the connection is open"),
            }
        };
        let kind = tokio::time::timeout(Duration::from_secs(60), ending).await.expect("the connection ends");
        assert_eq!(kind, io::ErrorKind::TimedOut);
    }

    async fn from(ip: &str, to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{ip}:0").parse().unwrap()).unwrap();
        socket.connect(to).await.unwrap()
    }

    fn gave_way(accepted: &mut Accepted) -> bool {
        accepted.2.try_recv() == Ok(())
    }

    #[tokio::test]
    async fn address_beyond_its_share_displaces_only_its_own_connections() {
        let (mut bounded, address) = listen(ConnectionLimit::new(3, 2), Duration::from_secs(60)).await;
        let mut clients = Vec::new();
        let mut held = Vec::new();
        for ip in ["127.0.0.2", "127.0.0.1", "127.0.0.1", "127.0.0.1"] {
            clients.push(from(ip, address).await);
            held.push(bounded.accept().await);
        }
        assert_eq!(held.iter_mut().map(gave_way).collect::<Vec<_>>(), [false, true, false, false]);
        // Both remaining connections of the address have sent a request just now.
        held[2].0.activity().has_request();
        held[3].0.activity().has_request();
        let mut refused = from("127.0.0.1", address).await;
        let mut client = from("127.0.0.3", address).await;
        // All places are taken: the oldest connection without a request is closed.
        let accepted = bounded.accept().await;
        assert_eq!(accepted.1.ip(), IpAddr::from([127, 0, 0, 3]));
        assert_eq!(refused.read(&mut [0]).await.unwrap(), 0, "it is closed");
        assert!(gave_way(&mut held[0]));
        client.write_all(b"x").await.unwrap();
    }

    #[tokio::test]
    async fn only_idle_connections_make_room() {
        let places = ConnectionLimit::new(2, 2);
        let address = IpAddr::from([127, 0, 0, 1]);
        let (first, mut first_gives_way) = places.admit(address).unwrap();
        let (second, mut second_gives_way) = places.admit(address).unwrap();
        first.activity.has_request();
        second.activity.has_request();
        let after = |time: Duration| places.taken.lock().make_room(Some(address), Instant::now() + time);
        assert!(after(IDLE_MIN / 2).is_none(), "both were quiet for a short time only");
        let work = first.activity.work.clone();
        let running = InFlightGuard::new(&work);
        second.activity.moved(Instant::now() + IDLE_MIN);
        assert!(after(IDLE_MIN * 3 / 2).is_none(), "one is at work, and on the other a byte moved");
        assert!(after(IDLE_MIN * 3).is_some());
        assert!(second_gives_way.try_recv().is_ok() && first_gives_way.try_recv().is_err());
        assert!(after(IDLE_MIN * 3).is_none());
        drop(running);
        assert!(after(IDLE_MIN * 3).is_some() && first_gives_way.try_recv().is_ok());
    }
}
