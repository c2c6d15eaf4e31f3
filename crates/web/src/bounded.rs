//! A TCP listener that has at most so many connections open at a time, and not all of them of one address. It closes those on which
//! nothing moves, and those whose client takes too long over an answer.

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

pub(crate) struct BoundedListener {
    pub listener: TcpListener,
    pub places: Arc<Places>,
    /// A connection on which no byte moves for so long is closed. Longer than a page may take.
    pub idle_timeout: Duration,
}

impl BoundedListener {
    /// The next connection for which there is a place.
    pub async fn accept(&mut self) -> (BoundedStream, SocketAddr) {
        loop {
            let permit = self.places.free.clone().acquire_owned().await.expect("nobody closes the semaphore");
            // It takes care of errors, such as a lack of descriptors.
            let (stream, peer) = axum::serve::Listener::accept(&mut self.listener).await;
            // Beyond its share it is closed at once: waiting, it would keep others waiting.
            if let Some(place) = self.places.take(peer.ip(), permit) {
                return (BoundedStream::new(stream, place, self.idle_timeout), peer);
            }
        }
    }
}

/// What there is for connections.
pub(crate) struct Places {
    free: Arc<Semaphore>,
    /// Of one address, at most.
    share: usize,
    /// How many each address has that has any.
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection's, given back when this is dropped.
struct Place {
    places: Arc<Places>,
    address: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub fn new(places: usize, share: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(places)), share, taken: Mutex::default() })
    }

    /// `None`: the address has its share.
    fn take(self: &Arc<Self>, address: IpAddr, permit: OwnedSemaphorePermit) -> Option<Place> {
        let mut taken = self.taken.lock();
        let count = taken.get(&address).copied().unwrap_or(0);
        if count >= self.share {
            return None;
        }
        taken.insert(address, count + 1);
        Some(Place { places: self.clone(), address, _permit: permit })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        match taken.get_mut(&self.address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                taken.remove(&self.address);
            }
        }
    }
}

/// When the client of a connection has to have taken all of its answer, if it is to be taken in a certain time.
#[derive(Clone, Default)]
pub(crate) struct Due(Arc<Mutex<Option<Instant>>>);

impl Due {
    pub fn set(&self, due: Option<Instant>) {
        *self.0.lock() = due;
    }

    fn get(&self) -> Option<Instant> {
        *self.0.lock()
    }
}

/// Of a connection: whether its server is at work, so that a silence is not its client's.
#[derive(Clone, Debug, Default)]
pub struct Work(Arc<Mutex<AtWork>>);

#[derive(Debug, Default)]
struct AtWork {
    /// How many do something for the client.
    running: usize,
    /// When the last of them had done it.
    ended: Option<Instant>,
}

impl Work {
    /// Waits for `work`, which has a bound of its own: as long as it takes, the connection is not closed because no byte moves on it.
    pub async fn during<F: Future>(&self, work: F) -> F::Output {
        let _running = Running::new(self);
        work.await
    }

    /// The last moment of which it is known that somebody was at work.
    fn last(&self) -> Option<Instant> {
        let at_work = self.0.lock();
        if at_work.running > 0 { Some(Instant::now()) } else { at_work.ended }
    }
}

struct Running<'a>(&'a Work);

impl<'a> Running<'a> {
    fn new(work: &'a Work) -> Self {
        work.0.lock().running += 1;
        Self(work)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut at_work = self.0.0.lock();
        at_work.running -= 1;
        at_work.ended = Some(Instant::now());
    }
}

pub(crate) struct BoundedStream {
    stream: TcpStream,
    idle_timeout: Duration,
    /// When a byte moved last, or the server did something for which the client had to wait.
    moved: Instant,
    due: Due,
    work: Work,
    /// Something is yet to be written: what is due is that, not what the client asks next.
    is_writing: bool,
    /// Wakes when one of the two is over.
    timer: Pin<Box<Sleep>>,
    _place: Place,
}

impl BoundedStream {
    fn new(stream: TcpStream, place: Place, idle_timeout: Duration) -> Self {
        let timer = Box::pin(sleep(idle_timeout));
        Self {
            stream,
            idle_timeout,
            moved: Instant::now(),
            due: Due::default(),
            work: Work::default(),
            is_writing: false,
            timer,
            _place: place,
        }
    }

    pub fn due(&self) -> Due {
        self.due.clone()
    }

    pub fn work(&self) -> Work {
        self.work.clone()
    }

    /// Passes on what is ready; what waits longer than the idle time-out, or comes after what is due, becomes an error.
    fn watch<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.moved = Instant::now();
        } else if let Some(at_work) = self.work.last() {
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

    /// Else each body would be copied behind its header.
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

    async fn listen(places: Arc<Places>, idle_timeout: Duration) -> (BoundedListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (BoundedListener { listener, places, idle_timeout }, address)
    }

    #[tokio::test]
    async fn silence_ends_a_connection_and_gives_its_place_back() {
        let places = Places::new(1, 1);
        let (mut bounded, address) = listen(places.clone(), Duration::from_millis(100)).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GE").await.unwrap();
        let (mut stream, _) = bounded.accept().await;
        let mut bytes = [0; 2];
        stream.read_exact(&mut bytes).await.unwrap();
        assert_eq!(places.free.available_permits(), 0);
        let error = stream.read(&mut bytes).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(stream);
        assert_eq!(places.free.available_permits(), 1);
        assert!(places.taken.lock().is_empty());
    }

    #[tokio::test]
    async fn a_connection_whose_server_is_at_work_is_not_idle() {
        let (mut bounded, address) = listen(Places::new(1, 1), Duration::from_millis(100)).await;
        let _client = TcpStream::connect(address).await.unwrap();
        let (mut stream, _) = bounded.accept().await;
        let work = stream.work();
        let began = Instant::now();
        let working = tokio::spawn(async move { work.during(sleep(Duration::from_millis(500))).await });
        let error = stream.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(working.is_finished() && began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn what_is_due_ends_a_connection_on_which_bytes_move() {
        let (mut bounded, address) = listen(Places::new(1, 1), Duration::from_secs(60)).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut stream, _) = bounded.accept().await;
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
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            kind = answering => assert_eq!(kind, io::ErrorKind::TimedOut),
            () = taking => panic!("the connection is open"),
            () = sleep(Duration::from_secs(60)) => panic!("it does not end"),
        }
    }

    #[tokio::test]
    async fn one_address_has_a_share_of_the_places() {
        let (mut bounded, address) = listen(Places::new(3, 2), Duration::from_secs(60)).await;
        let from = async |ip: &str| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(format!("{ip}:0").parse().unwrap()).unwrap();
            socket.connect(address).await.unwrap()
        };
        let mut clients = Vec::new();
        let mut held = Vec::new();
        for _ in 0..2 {
            clients.push(from("127.0.0.1").await);
            held.push(bounded.accept().await);
        }
        let mut third = from("127.0.0.1").await;
        let _other = from("127.0.0.2").await;
        let (_stream, peer) = bounded.accept().await;
        assert_eq!(peer.ip(), IpAddr::from([127, 0, 0, 2]));
        assert_eq!(third.read(&mut [0]).await.unwrap(), 0, "it is closed");
        held.pop();
        clients.push(from("127.0.0.1").await);
        let (_stream, peer) = bounded.accept().await;
        assert_eq!(peer.ip(), IpAddr::from([127, 0, 0, 1]));
    }
}
