//! Finding lanes, and locking the gates that limits are kept on.

use super::claim::set;
use crate::case::cases;
use crate::scenario::{LEASE, name};
use crate::verbs::{limit, rate};
use crate::{Outcome, Scenario, World};
use leasehold_core::model::{AgentName, Bucket, GateKey, KindName, Lane, LaneKey, QueuePolicy};
use leasehold_core::state::StoredStatus;
use leasehold_core::store::StoreResult;
use leasehold_core::store::rows::{LaneScan, OpenLane};
use std::collections::BTreeSet;

cases! { steps:
    lanes_with_work_are_listed_in_key_order_and_in_pages proves ["Q2", "Q10"];
    a_lane_without_work_is_not_listed proves ["Q10"];
    lanes_are_filtered_by_kind_and_agent proves ["Q7"];
    a_lane_comes_with_its_most_specific_policy proves ["Q1", "Q5"];
    an_open_lane_tells_the_leases_of_its_gate_where_they_are_limited proves ["Q1"];
    a_locked_gate_counts_its_leases proves ["Q1"];
    a_bucket_is_kept_with_its_gate proves ["Q1"];
}

fn scan(limit: u32) -> LaneScan {
    LaneScan { after: None, kinds: None, agents: Vec::new(), limit }
}

fn keys(lanes: &[OpenLane]) -> Vec<LaneKey> {
    lanes.iter().map(|open| open.lane.key).collect()
}

fn lanes_with_work_are_listed_in_key_order_and_in_pages(w: &mut World) -> Outcome {
    let mut scenario = Scenario::new();
    for at in 0..9 {
        scenario = scenario.op(&format!("a{at}")).queue(&format!("q{}", at % 3)).op(&format!("b{at}")).kind(&format!("a{at}"));
    }
    let planted = scenario.plant(w)?;
    let mut expected: Vec<LaneKey> = planted.lanes.iter().map(|lane| lane.key).collect();
    expected.sort_unstable();
    assert_eq!(keys(&w.read(|tx| tx.open_lanes(&scan(1_000)))?.lanes), expected);
    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let page = w.read(|tx| tx.open_lanes(&LaneScan { after, ..scan(4) }))?.lanes;
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 4);
        after = Some(last.lane.key);
        paged.extend(keys(&page));
    }
    assert_eq!(paged, expected);
    let lanes: Vec<Lane> = w.read(|tx| tx.open_lanes(&scan(1_000)))?.lanes.into_iter().map(|open| open.lane).collect();
    assert!(lanes.iter().all(|lane| planted.lanes.contains(lane)), "each lane is told whole");
    Ok(())
}

fn a_lane_without_work_is_not_listed(w: &mut World) -> Outcome {
    let later = w.now().after(LEASE)?;
    let planted = Scenario::new()
        .op("ready")
        .op("leased")
        .leased_by("w1")
        .op("later")
        .due(later)
        .op("pending")
        .after(&["ready"])
        .op("done")
        .succeeded()
        .op("waiting")
        .row(StoredStatus::Waiting)
        .plant(w)?;
    let kinds: Vec<KindName> = w.read(|tx| tx.open_lanes(&scan(100)))?.lanes.into_iter().map(|open| open.lane.kind).collect();
    assert_eq!(kinds, [name::<KindName>("ready")]);
    w.tx(|tx| tx.unqueue(&[planted.op("ready")]))?;
    assert_eq!(w.read(|tx| tx.open_lanes(&scan(100)))?.lanes, []);
    Ok(())
}

fn lanes_are_filtered_by_kind_and_agent(w: &mut World) -> Outcome {
    Scenario::new().op("a").op("b").op("a gpu").kind("a").agent("gpu").op("b tpu").kind("b").agent("tpu").plant(w)?;
    let found = |kinds: Option<&[&str]>, agents: &[&str]| -> StoreResult<BTreeSet<String>> {
        let kinds = kinds.map(|kinds| kinds.iter().map(|kind| name::<KindName>(*kind)).collect());
        let agents: Vec<AgentName> = agents.iter().map(|agent| name(*agent)).collect();
        let lanes = w.read(|tx| tx.open_lanes(&LaneScan { kinds: kinds.clone(), agents: agents.clone(), ..scan(100) }))?.lanes;
        Ok(lanes.iter().map(|open| format!("{} {}", open.lane.kind, open.lane.agent.as_ref().map_or("-", |a| a.as_str()))).collect())
    };
    assert_eq!(found(None, &[])?, set(&["a -", "b -"]), "who offers no agent serves what names none");
    assert_eq!(found(None, &["gpu", "tpu"])?, set(&["a -", "b -", "a gpu", "b tpu"]));
    assert_eq!(found(Some(&["a"]), &["gpu", "tpu"])?, set(&["a -", "a gpu"]));
    assert_eq!(found(Some(&["b", "x"]), &["gpu"])?, set(&["b -"]));
    assert_eq!(found(Some(&[]), &["gpu"])?, set(&[]), "who serves no kind claims nothing");
    Ok(())
}

fn a_lane_comes_with_its_most_specific_policy(w: &mut World) -> Outcome {
    Scenario::new().op("a").queue("q").site("s").op("b").queue("q").site("t").op("c").queue("free").plant(w)?;
    let own = QueuePolicy { site: Some(name("s")), ..limit("q", 5) };
    w.set_policies(&[limit("q", 2), own.clone()])?;
    for open in w.read(|tx| tx.open_lanes(&scan(10)))?.lanes {
        let expected = match (open.lane.queue.as_str(), open.lane.site.as_str()) {
            ("q", "s") => Some(own.clone()),
            ("q", _) => Some(limit("q", 2)),
            _ => None,
        };
        assert_eq!(open.policy, expected, "{:?}", open.lane);
        let gate = open.lane.gate;
        let locked = w.tx(|tx| tx.lock_gates(&[gate]))?;
        assert_eq!(locked.iter().map(|gate| gate.policy.clone()).collect::<Vec<_>>(), [expected], "the locked gate says the same");
    }
    Ok(())
}

fn an_open_lane_tells_the_leases_of_its_gate_where_they_are_limited(w: &mut World) -> Outcome {
    Scenario::new().op("x").queue("q").leased_by("w1").op("a").queue("q").op("y").leased_by("w1").op("b").plant(w)?;
    w.set_policies(&[limit("q", 3)])?;
    let seen = w.read(|tx| tx.open_lanes(&scan(10)))?.lanes;
    assert_eq!(seen.len(), 2);
    for open in seen {
        let expected = u32::from(open.lane.queue.as_str() == "q");
        assert_eq!(open.in_flight, expected, "{:?}", open.lane);
    }
    Ok(())
}

fn a_locked_gate_counts_its_leases(w: &mut World) -> Outcome {
    let planted = Scenario::new().ops("a", 3).op("b").queue("q").op("c").queue("empty").row(StoredStatus::Pending).plant(w)?;
    w.set_policies(&[rate("q", 2.5, 4)])?;
    w.tx(|tx| tx.claim_ready(&planted.claim(2)))?;
    let mut gates: Vec<GateKey> = planted.lanes.iter().map(|lane| lane.gate).collect();
    gates.push(GateKey(1));
    let mut locked = w.tx(|tx| tx.lock_gates(&gates))?;
    locked.sort_by_key(|gate| gate.gate);
    gates.retain(|gate| *gate != GateKey(1));
    gates.sort_unstable();
    assert_eq!(locked.iter().map(|gate| gate.gate).collect::<Vec<_>>(), gates, "what is not there is left out");
    for gate in locked {
        let queue = planted.lanes.iter().find(|lane| lane.gate == gate.gate).map_or("", |lane| lane.queue.as_str());
        let (in_flight, policy) = match queue {
            "q" => (1, Some(rate("q", 2.5, 4))),
            "empty" => (0, None),
            _ => (2, None),
        };
        assert_eq!((gate.in_flight, &gate.policy, gate.bucket, gate.now), (in_flight, &policy, None, w.now()), "{queue}");
    }
    Ok(())
}

fn a_bucket_is_kept_with_its_gate(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").queue("q").op("b").queue("p").plant(w)?;
    let gates: Vec<GateKey> = planted.lanes.iter().map(|lane| lane.gate).collect();
    let [q, p] = gates.as_slice() else { panic!("two queues are two gates") };
    let bucket = Bucket { micro_tokens: 4_123_456_789_012, counted_at: w.now() };
    w.tx(|tx| {
        tx.lock_gates(&gates)?;
        tx.set_buckets(&[(*q, bucket)])
    })?;
    let kept = w.tx(|tx| tx.lock_gates(&gates))?;
    let of = |key: &GateKey| kept.iter().find(|gate| gate.gate == *key).and_then(|gate| gate.bucket);
    assert_eq!((of(q), of(p)), (Some(bucket), None));
    Ok(())
}
