//! Resolvers, served pods and questions for the tests of the DNS proxy.

use super::*;

pub(super) const SOON: Duration = Duration::from_secs(30);

/// What a resolver of the test says to a question; none is silence.
pub(super) type Says = Rc<dyn Fn(&[u8], bool) -> Vec<Vec<u8>>>;

/// A resolver on loopback that counts what it is asked over UDP and TCP.
pub(super) struct Fake {
    pub(super) address: SocketAddr,
    pub(super) asked: Rc<[AtomicUsize; 2]>,
    pub(super) tasks: [JoinHandle<()>; 2],
}

impl Fake {
    pub(super) async fn start(says: impl Fn(&[u8], bool) -> Vec<Vec<u8>> + 'static) -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            // The same port over TCP may be somebody else's.
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let (says, asked): (Says, Rc<[AtomicUsize; 2]>) = (Rc::new(says), Rc::default());
        let (says_too, asked_too) = (Rc::clone(&says), Rc::clone(&asked));
        let over_udp = spawn_local(async move {
            let mut buffer = vec![0; 65536];
            while let Ok((length, peer)) = udp.recv_from(&mut buffer).await {
                asked_too[0].fetch_add(1, Ordering::Relaxed);
                for reply in says_too(&buffer[..length], false) {
                    udp.send_to(&reply, peer).await.unwrap();
                }
            }
        });
        let asked_too = Rc::clone(&asked);
        let over_tcp = spawn_local(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                asked_too[1].fetch_add(1, Ordering::Relaxed);
                let question = hear(&mut stream).await;
                for reply in says(&question, true) {
                    stream.write_all(&framed(&reply)).await.unwrap();
                }
            }
        });
        Self {
            address,
            asked,
            tasks: [over_udp, over_tcp],
        }
    }

    pub(super) fn asked(&self) -> (usize, usize) {
        let [udp, tcp] = &*self.asked;
        (udp.load(Ordering::Relaxed), tcp.load(Ordering::Relaxed))
    }

    pub(super) fn stop(self) {
        for task in self.tasks {
            task.abort();
        }
    }
}

pub(super) async fn hear(stream: &mut TcpStream) -> Vec<u8> {
    let length = stream.read_u16().await.unwrap();
    let mut message = vec![0; length.into()];
    stream.read_exact(&mut message).await.unwrap();
    message
}

/// A response with a code and addresses, in as many letters of the question as there are.
pub(super) fn reply(question: &[u8], code: u8, addresses: &[[u8; 4]]) -> Vec<u8> {
    let mut reply = question[..question_end(question)].to_vec();
    reply[2] |= 0x80;
    reply[3] = 0x80 | code;
    reply[6..12].fill(0);
    reply[6..8].copy_from_slice(&(addresses.len() as u16).to_be_bytes());
    for address in addresses {
        reply.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        reply.extend_from_slice(address);
    }
    reply
}

pub(super) fn cut(question: &[u8]) -> Vec<u8> {
    let mut reply = reply(question, 0, &[]);
    reply[2] |= 0x02;
    reply
}

pub(super) fn question_end(question: &[u8]) -> usize {
    let mut at = 12;
    while question[at] != 0 {
        at += 1 + usize::from(question[at]);
    }
    at + 5
}

pub(super) fn question(id: u16, name: &str, family: Family) -> Vec<u8> {
    let mut question = lateen_dns::question(name, family).unwrap();
    lateen_dns::set_id(&mut question, id);
    question
}

pub(super) fn of_type(mut question: Vec<u8>, kind: u16) -> Vec<u8> {
    let end = question_end(&question);
    question[end - 4..end - 2].copy_from_slice(&kind.to_be_bytes());
    question
}

pub(super) fn addresses(reply: &[u8]) -> Vec<IpAddr> {
    lateen_dns::find(reply, Family::V4)
        .expect("a reply")
        .addresses
}

pub(super) fn ip(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

/// A proxy that knows the service `web` and asks these resolvers.
pub(super) struct Rig {
    pub(super) common: Rc<Common>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) namespaces: NamespaceThread,
}

/// Sockets of a server on loopback, and their address.
pub(super) fn sockets() -> (DnsSockets, SocketAddr) {
    let (udp, tcp) = loop {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(tcp) = std::net::TcpListener::bind(udp.local_addr().unwrap()) {
            break (udp, tcp);
        }
    };
    udp.set_nonblocking(true).unwrap();
    tcp.set_nonblocking(true).unwrap();
    let address = udp.local_addr().unwrap();
    let sockets = DnsSockets {
        udp: vec![udp.into()],
        tcp: vec![tcp.into()],
    };
    (sockets, address)
}

/// A served pod.
pub(super) struct Served {
    pub(super) pod: Arc<Pod>,
    pub(super) address: SocketAddr,
    pub(super) task: JoinHandle<()>,
    pub(super) stop: watch::Sender<()>,
}

impl Rig {
    pub(super) fn new(servers: &[SocketAddr]) -> Self {
        let mut store = Store::new("", Some("n1"));
        let service = wds::service_resource(wds::service("web", ip(1), 80, 80));
        let bytes = prost::Message::encode_to_vec(&service).into();
        let refused = store.apply(&Batch {
            upserts: vec![(wds::service_name("default", "web").into(), bytes)],
            ..Batch::new(&resource_kinds::ADDRESS)
        });
        assert!(refused.is_empty(), "{refused:?}");
        let current = Current::default();
        current.set(store.snapshot());
        let build = BuildInfo {
            component: "ztunnel",
            tag: "test",
        };
        let metrics = Arc::new(Metrics::new(&build, Vec::new));
        let resolvers = Resolvers {
            servers: servers.to_vec(),
            // A resolver of the test is not late, but a busy machine may stop the thread that it runs on. Two attempts are
            // within what a question has in all.
            timeout: Duration::from_secs(4),
            attempts: 2,
            useless: vec![],
        };
        Self {
            common: Rc::new(Common {
                current,
                upstream: Rc::new(Upstream::new(File::saying(resolvers))),
                metrics: metrics.dns().clone(),
                questions: Arc::new(Semaphore::new(server::ALL_QUESTIONS)),
                naming: Naming {
                    domain: "cluster.local".into(),
                    preferred: None,
                    network: "".into(),
                    ipv6: true,
                },
            }),
            metrics,
            namespaces: NamespaceThread::start().expect("this test needs root: it marks sockets"),
        }
    }

    pub(super) fn pod(&self, name: &str) -> Arc<Pod> {
        let info = PodInfo {
            name: name.into(),
            namespace: "default".into(),
            service_account: name.into(),
        };
        let home = Netns::current().unwrap();
        let sockets = SocketPool::new(home, Options::default(), self.namespaces.clone());
        let identity = Identity::new("cluster.local", "default", name).unwrap();
        let uid = wds::uid("default", name).as_str().into();
        Arc::new(Pod::new(uid, info, identity, sockets, 4096))
    }

    pub(super) fn serve(&self, name: &str) -> Served {
        let pod = self.pod(name);
        let (sockets, address) = sockets();
        let (stop, stopped) = watch::channel(());
        let serving = server::serve(Arc::clone(&pod), sockets, Rc::clone(&self.common), stopped);
        let task = spawn_local(async move { serving.await.unwrap() });
        Served {
            pod,
            address,
            task,
            stop,
        }
    }

    pub(super) fn metric(&self, start: &str) -> u64 {
        let page = self.metrics.render();
        let lines = page.lines().filter(|line| line.starts_with(start));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }
}

impl Served {
    pub(super) async fn ask(&self, question: &[u8]) -> Vec<u8> {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(self.address).await.unwrap();
        client.send(question).await.unwrap();
        let mut buffer = vec![0; 65536];
        let length = timeout(SOON, client.recv(&mut buffer))
            .await
            .expect("a reply")
            .unwrap();
        buffer.truncate(length);
        assert!(
            lateen_dns::matches(question, &buffer),
            "{question:?} {buffer:?}"
        );
        buffer
    }
}

pub(super) async fn local(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}
