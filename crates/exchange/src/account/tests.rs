use std::task::Wake;

use proptest::prelude::*;

use super::*;

const MIB: usize = 1 << 20;

/// Counts its wakes.
#[derive(Default)]
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn requests(bytes: usize) -> Held {
    Held {
        requests: bytes,
        answers: 0,
    }
}

fn answers(bytes: usize) -> Held {
    Held {
        requests: 0,
        answers: bytes,
    }
}

/// Takes as much as a connection may that is read by so many bytes at a time.
fn fill(charge: &mut Charge, held: &mut usize, step: usize) {
    while charge.has_room(Part::Requests) {
        *held += step;
        charge.raise(requests(*held));
    }
}

#[test]
fn connections_that_nobody_reads_leave_room_to_others() {
    let account = Account::new(2 * MIB);
    let mut greedy: Vec<_> = (0..4).map(|_| Charge::new(account.clone())).collect();
    for charge in &mut greedy {
        fill(charge, &mut 0, UNIT);
    }
    assert!(account.held() < MIB, "{}", account.held());
    let mut late = Charge::new(account.clone());
    let mut held = 0;
    fill(&mut late, &mut held, UNIT);
    assert!(held >= 16 * 1024, "{held}");
    drop((late, greedy));
    assert_eq!(account.held(), 0);
}

#[test]
fn answers_have_room_when_requests_have_none() {
    let account = Account::new(MIB);
    let mut request = Charge::new(account.clone());
    request.raise(requests(MIB / 2));
    let mut answer = Charge::new(account.clone());
    assert!(!answer.has_room(Part::Requests));
    assert!(answer.has_room(Part::Answers) && answer.admits(MIB / 2));
    assert!(!answer.admits(MIB / 2 + 1));
    answer.raise(answers(MIB / 2));
    assert!(!answer.has_room(Part::Answers) && answer.admits(MIB / 2));
}

#[test]
fn requests_have_room_when_answers_hold_half() {
    let account = Account::new(MIB);
    let mut answer = Charge::new(account.clone());
    answer.raise(answers(MIB / 2));
    let mut request = Charge::new(account.clone());
    assert_eq!(request.room(Part::Requests), MIB / 2);
    request.raise(requests(MIB / 4));
    assert_eq!(request.room(Part::Requests), MIB / 4);
    answer.raise(answers(MIB * 3 / 4));
    assert!(!Charge::new(account.clone()).has_room(Part::Requests));
}

#[test]
fn requests_that_wait_behind_answers_are_woken_when_these_leave() {
    let account = Account::new(MIB);
    let mut answer = Charge::new(account.clone());
    answer.raise(answers(MIB));
    let task = Arc::new(Task::default());
    let waker = Waker::from(Arc::clone(&task));
    let cx = Context::from_waker(&waker);
    let mut waits = Charge::new(account.clone());
    assert!(!waits.poll_room(Part::Requests, &cx, &mut Vec::new()));
    assert!(
        answer.set(answers(MIB - UNIT)).is_none(),
        "it is too little"
    );
    let freed = answer.set(answers(MIB / 2)).expect("somebody waits");
    freed.tell();
    assert_eq!(task.0.load(Ordering::Relaxed), 1);
    assert!(waits.poll_room(Part::Requests, &cx, &mut Vec::new()));
}

#[test]
fn all_that_wait_are_woken_though_their_accounts_differ() {
    let process = Account::new(MIB);
    let mut holder = Charge::new(process.within(MIB));
    holder.raise(requests(MIB / 2));
    let tasks = [(); 2].map(|()| Arc::new(Task::default()));
    let mut waits = [(); 3].map(|()| Charge::new(process.within(MIB)));
    for (charge, task) in waits.iter_mut().zip(&tasks) {
        let waker = Waker::from(Arc::clone(task));
        assert!(!charge.poll_room(
            Part::Requests,
            &Context::from_waker(&waker),
            &mut Vec::new()
        ));
    }
    let other = Waker::from(Arc::new(Task::default()));
    let [.., gone] = &mut waits;
    assert!(!gone.poll_room(
        Part::Requests,
        &Context::from_waker(&other),
        &mut Vec::new()
    ));
    let [one, two, gone] = waits;
    drop(gone);
    drop(holder);
    assert!(tasks.iter().all(|task| task.0.load(Ordering::Relaxed) == 1));
    assert!(one.has_room(Part::Requests) && two.has_room(Part::Requests));
}

#[test]
fn a_connection_whose_own_account_is_full_is_not_woken_by_others() {
    let process = Account::new(64 * MIB);
    let (own, others) = (process.within(MIB), process.within(64 * MIB));
    let mut holder = Charge::new(own.clone());
    holder.raise(requests(MIB / 2));
    let mut other = Charge::new(others);
    other.raise(answers(16 * MIB));
    let task = Arc::new(Task::default());
    let waker = Waker::from(Arc::clone(&task));
    let cx = Context::from_waker(&waker);
    let mut waits = Charge::new(own.clone());
    assert!(!waits.poll_room(Part::Requests, &cx, &mut Vec::new()));
    assert_eq!((own.waiting(), process.waiting()), (1, 1));
    other.set(answers(0)).into_iter().for_each(Freed::tell);
    assert_eq!(task.0.load(Ordering::Relaxed), 0);
    holder.set(requests(0)).expect("somebody waits").tell();
    assert_eq!(task.0.load(Ordering::Relaxed), 1);
    assert!(waits.poll_room(Part::Requests, &cx, &mut Vec::new()));
    assert_eq!((own.waiting(), process.waiting()), (0, 0));
}

#[test]
fn a_byte_counts_in_every_account_above() {
    let process = Account::new(4 * MIB);
    let tenant = process.within(2 * MIB);
    let (one, other) = (tenant.within(MIB), tenant.within(MIB));
    let mut first = Charge::new(one.clone());
    first.raise(requests(MIB));
    let mut second = Charge::new(other.clone());
    assert!(!second.has_room(Part::Requests), "its tenant has its half");
    second.raise(requests(MIB));
    let stranger = Charge::new(process.within(MIB));
    assert!(!stranger.has_room(Part::Requests));
    assert_eq!((tenant.held(), process.held()), (2 * MIB, 2 * MIB));
    drop(first);
    assert!(stranger.has_room(Part::Requests));
    assert_eq!((one.held(), process.held()), (0, MIB));
    drop(second);
    assert_eq!(process.held(), 0);
}

#[test]
fn little_is_not_charged() {
    let account = Account::new(MIB);
    let mut charge = Charge::new(account.clone());
    charge.raise(requests(FREE));
    assert_eq!(account.held(), 0);
    charge.raise(requests(FREE + 1));
    assert_eq!(account.held(), 2 * UNIT);
    assert!(charge.set(requests(FREE)).is_none());
    assert_eq!(account.held(), 0);
}

#[test]
fn those_that_wait_are_woken_by_room_and_not_by_every_byte() {
    let account = Account::new(MIB);
    let mut holder = Charge::new(account.clone());
    holder.raise(requests(MIB / 2));
    let task = Arc::new(Task::default());
    let waker = Waker::from(Arc::clone(&task));
    let cx = Context::from_waker(&waker);
    let mut waits = Charge::new(account.clone());
    for _ in 0..2 {
        assert!(!waits.poll_room(Part::Requests, &cx, &mut Vec::new()));
    }
    assert!(
        holder.set(requests(MIB / 2 - UNIT)).is_none(),
        "it is too little"
    );
    let freed = holder.set(requests(MIB / 4)).expect("somebody waits");
    freed.tell();
    assert_eq!(task.0.load(Ordering::Relaxed), 1);
    assert!(waits.poll_room(Part::Requests, &cx, &mut Vec::new()));
    // Nobody waits any more.
    assert!(holder.set(requests(0)).is_none());
    holder.raise(requests(MIB / 2));
    assert!(!waits.poll_room(Part::Requests, &cx, &mut Vec::new()));
    drop(waits);
    drop(holder);
    assert_eq!(task.0.load(Ordering::Relaxed), 1, "it has ended before");
}

#[test]
fn a_connection_that_has_room_again_waits_no_more() {
    let process = Account::new(4 * MIB);
    let account = process.within(MIB);
    let mut holder = Charge::new(account.clone());
    holder.raise(requests(MIB / 2 - 2 * UNIT));
    let mut waits = Charge::new(account.clone());
    waits.raise(requests(2 * UNIT));
    let waker = Waker::from(Arc::new(Task::default()));
    let cx = Context::from_waker(&waker);
    let mut before = Vec::new();
    assert!(!waits.poll_room(Part::Requests, &cx, &mut before));
    assert_eq!((account.waiting(), process.waiting()), (1, 1));
    // It passes on what it holds, which is too little to wake others.
    assert!(waits.set(requests(0)).is_none());
    assert!(waits.poll_room(Part::Requests, &cx, &mut before));
    assert_eq!((account.waiting(), process.waiting()), (0, 0));
    assert_eq!(before.len(), 1, "the caller drops the waker");
}

proptest! {
    #[test]
    fn accounts_are_exact(
        steps in prop::collection::vec((0usize..4, 0usize..300_000), 0..100),
    ) {
        let process = Account::new(MIB);
        let peer = process.within(MIB / 2);
        let mut charges: Vec<_> = (0..4).map(|_| Charge::new(peer.clone())).collect();
        for (which, held) in steps {
            let freed = charges[which].set(Held {
                requests: held / 3,
                answers: held - held / 3,
            });
            prop_assert!(freed.is_none(), "nobody waits");
            let sum: usize = charges.iter().map(|charge| charge.bytes).sum();
            prop_assert_eq!(peer.held(), sum);
            prop_assert_eq!(process.held(), sum);
            let sum: usize = charges.iter().map(|charge| charge.requests).sum();
            prop_assert_eq!(peer.0.requests.held(), sum);
            prop_assert_eq!(process.0.requests.held(), sum);
            prop_assert!(charges[which].bytes + FREE >= held);
        }
        drop(charges);
        prop_assert_eq!(process.held(), 0);
        prop_assert_eq!(process.0.requests.held(), 0);
    }
}
