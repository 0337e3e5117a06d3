//! The namespace thread between its errands. Alone in its process, so that every thread in it is this test's. Needs root.

mod support;

use lateen_netns::{Kind, NamespaceThread, Netns, Options, SocketPool};
use support::{TestPod, cookie};

/// The network namespace that each thread of this process of that name is in, as the kernel shows it.
fn whereabouts(thread: &str) -> Vec<String> {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| task.unwrap().path())
        .filter(|task| std::fs::read_to_string(task.join("comm")).unwrap().trim() == thread)
        .map(|task| {
            std::fs::read_link(task.join("ns/net"))
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

#[tokio::test]
async fn the_namespace_thread_is_home_after_every_visit() {
    let home = format!("net:[{}]", Netns::current().unwrap().inode());
    let own = |socket: std::net::UdpSocket| cookie(&socket);
    let before = own(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let pods: Vec<_> = (0..3).map(|_| TestPod::new()).collect();
    let thread = NamespaceThread::start().unwrap();
    for pod in &pods {
        assert_ne!(format!("net:[{}]", pod.netns.inode()), home);
        thread
            .open_listeners(&pod.netns, Options::default())
            .await
            .unwrap();
        assert_eq!(whereabouts("namespace"), [home.as_str()]);
        let pool = SocketPool::new(pod.netns.clone(), Options::default(), thread.clone());
        pool.take(Kind::Outbound).await.unwrap();
        assert_eq!(whereabouts("namespace"), [home.as_str()]);
    }
    let after = own(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    assert_eq!(before, after);
}
