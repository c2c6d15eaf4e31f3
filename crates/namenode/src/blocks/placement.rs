//! The choice of targets, following Apache's default policy: the first replica on the writer's machine, the second in
//! another rack, the third in the same rack as the second, further ones anywhere, with a limit per rack.

use std::collections::{HashMap, HashSet};

use hearth_types::{DatanodeId, StorageType};

use super::datanodes::{DatanodeIndex, StorageIndex};
use super::topology::distance;
use super::{BlockError, BlockMap, Now, StoragePolicy};

/// Requirements for the targets of a new block, or of a copy.
#[derive(Clone, Debug, Default)]
pub struct PlacementRequest<'a> {
    /// Number of targets wanted in addition to those in `chosen`.
    pub additional: usize,
    /// Bytes that a target must have room for: the file's block size.
    pub block_size: u64,
    /// The writer's address as text; `None` for no particular writer.
    pub writer: Option<&'a str>,
    /// Datanodes that must not be chosen.
    pub excluded: &'a [DatanodeId],
    /// `host:port` of datanodes to try first.
    pub favored: &'a [String],
    /// Storages that hold the block or will receive it; their nodes are not chosen again.
    pub chosen: &'a [StorageIndex],
    /// Id of the file's storage policy, 0 for none.
    pub policy: u8,
    /// AddBlockFlag NO_LOCAL_WRITE: not on the writer's own machine, if there is any other.
    pub avoid_local_node: bool,
    /// AddBlockFlag NO_LOCAL_RACK.
    pub avoid_local_rack: bool,
    /// AddBlockFlag IGNORE_CLIENT_LOCALITY (and create's): the writer's location does not matter.
    pub ignore_locality: bool,
    /// For re-replication: fall back to other media by `replication_fallbacks`, not as for a new block.
    pub for_replication: bool,
    /// Accept busy nodes, for requests without an alternative: a missing copy, or a pipeline that lost a member.
    pub at_any_load: bool,
}

impl BlockMap {
    /// Returns the datanode that `host:port` refers to, by its address or by the name that it reports.
    fn called(&self, name: &str) -> Option<DatanodeIndex> {
        let (host, port) = name.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        let by_name = |(index, node): (DatanodeIndex, &super::datanodes::Datanode)| {
            (node.id.host_name == host && node.id.transfer_port == port).then_some(index)
        };
        self.nodes.by_address(host, port).or_else(|| self.nodes.iter().find_map(by_name))
    }

    /// Returns true if a datanode has this name or address.
    pub fn is_called(&self, name: &str) -> bool {
        self.called(name).is_some()
    }

    /// Chooses targets for a new block, in pipeline order. Fewer than wanted is no error as long as there are
    /// `dfs.namenode.replication.min`.
    pub fn allocate_targets(
        &mut self,
        request: &PlacementRequest<'_>,
        now: Now,
    ) -> Result<Vec<StorageIndex>, BlockError> {
        let found = self.choose_targets(request, now);
        let minimum = self.settings.min_replication;
        if found.len() < usize::from(minimum).min(request.additional) {
            return Err(BlockError::NotEnoughTargets {
                found: found.len(),
                minimum,
                running: self.nodes.iter().filter(|(_, node)| node.alive).count(),
                excluded: request.excluded.len(),
            });
        }
        for storage in &found {
            self.schedule_one(*storage);
        }
        Ok(found)
    }

    /// Chooses further targets for a running pipeline (getAdditionalDatanode), without those in `request.chosen`; may
    /// find none.
    pub fn additional_targets(&mut self, request: &PlacementRequest<'_>, now: Now) -> Vec<StorageIndex> {
        let found = self.choose_targets(request, now);
        for storage in &found {
            self.schedule_one(*storage);
        }
        found
    }

    /// Chooses the datanode to which an HTTP client on this machine (text of its address) is redirected to write a
    /// block of the given size, or to read. It is the node that would get the client's first replica, otherwise any
    /// live one; nodes that are connected, in service and not stale are preferred.
    pub fn gateway(
        &self,
        machine: &str,
        block_size: u64,
        is_excluded: impl Fn(&DatanodeId) -> bool,
        now: Now,
    ) -> Option<DatanodeId> {
        // Port 0: the node has no HTTP server.
        let unfit = |id: &DatanodeId| id.info_port == 0 || is_excluded(id);
        let mut fit = Vec::new();
        let mut excluded = Vec::new();
        for (_, node) in self.nodes.iter() {
            if unfit(&node.id) {
                excluded.push(node.id.clone());
            } else if node.alive {
                fit.push(node);
            }
        }
        let request = PlacementRequest {
            additional: 1,
            block_size,
            writer: Some(machine),
            excluded: &excluded,
            ..PlacementRequest::default()
        };
        if let Some(storage) = self.choose_targets(&request, now).first() {
            return Some(self.nodes.node_of(*storage).id.clone());
        }
        self.random.shuffle(&mut fit);
        let second = fit
            .into_iter()
            .min_by_key(|node| (node.disconnected, !node.in_service(), node.is_stale(&self.settings, now)));
        second.map(|node| node.id.clone())
    }

    /// Counts a block as scheduled to a node, so that its room is not given away twice.
    pub(super) fn schedule_one(&mut self, storage: StorageIndex) {
        let node = self.nodes.storage(storage).node;
        let node = self.nodes.node_mut(node);
        node.scheduled[0] = node.scheduled[0].saturating_add(1);
    }

    pub(super) fn choose_targets(&self, request: &PlacementRequest<'_>, now: Now) -> Vec<StorageIndex> {
        let policy = StoragePolicy::by_id(request.policy)
            .or_else(|| StoragePolicy::by_id(self.settings.default_policy))
            .unwrap_or_else(|| StoragePolicy::by_id(7).expect("HOT is built in"));
        let mut choice = TargetSelection::new(self, request, policy, now);
        // Stale nodes are a fallback, like other media.
        if self.settings.avoid_stale_writes {
            choice.avoid_stale = true;
            choice.run();
            choice.avoid_stale = false;
        }
        choice.run();
        if choice.missing() > 0 {
            choice.use_fallbacks();
            choice.run();
        }
        if choice.missing() > 0 && request.at_any_load {
            choice.load_max = f64::INFINITY;
            choice.run();
        }
        // A file with too few replicas is repaired soon. A writer that is sent to a node that is gone only waits for it.
        // A pipeline that lost a member has no other choice: its client leaves out a node that is gone.
        let repairs_pipeline = request.at_any_load && !request.for_replication;
        let minimum = match repairs_pipeline {
            true => request.additional,
            false => usize::from(self.settings.min_replication).saturating_sub(request.chosen.len()),
        };
        if choice.found.len() < minimum.min(request.additional) {
            choice.avoid_disconnected = false;
            choice.run();
        }
        choice.pipeline()
    }
}

/// One run of the policy.
struct TargetSelection<'a> {
    map: &'a BlockMap,
    request: &'a PlacementRequest<'a>,
    now: Now,
    policy: &'static StoragePolicy,
    /// Media still wanted, in order.
    wanted: Vec<StorageType>,
    found: Vec<StorageIndex>,
    taken: HashSet<DatanodeIndex>,
    per_rack: HashMap<&'a str, usize>,
    per_rack_max: usize,
    load_max: f64,
    /// Leave out nodes whose connection has ended.
    avoid_disconnected: bool,
    avoid_stale: bool,
    writer_nodes: Vec<DatanodeIndex>,
    writer_machine: String,
    writer_rack: String,
}

/// Set of nodes to search for the next target.
enum Scope<'a> {
    Anywhere,
    In(&'a str),
    NotIn(&'a str),
}

impl<'a> TargetSelection<'a> {
    fn new(map: &'a BlockMap, request: &'a PlacementRequest<'a>, policy: &'static StoragePolicy, now: Now) -> Self {
        let mut taken = HashSet::new();
        let mut per_rack: HashMap<&str, usize> = HashMap::new();
        let mut wanted = policy.wanted(request.chosen.len() + request.additional);
        for storage in request.chosen {
            let known = map.nodes.storage(*storage);
            taken.insert(known.node);
            *per_rack.entry(map.nodes.node(known.node).rack.as_str()).or_default() += 1;
            if let Some(met) = wanted.iter().position(|medium| *medium == known.storage_type) {
                wanted.remove(met);
            }
        }
        wanted.truncate(request.additional);
        taken.extend(
            request.excluded.iter().filter_map(|id| {
                map.nodes.by_uuid(&id.uuid).or_else(|| map.nodes.by_address(&id.ip, id.transfer_port))
            }),
        );
        let serving: Vec<_> = map.nodes.iter().filter(|(_, node)| node.in_service()).collect();
        let load: f64 = serving.iter().map(|(_, node)| f64::from(node.xceivers)).sum();
        let ip = if request.ignore_locality { None } else { request.writer };
        let (writer_machine, writer_rack) = map.place_of(ip);
        Self {
            map,
            request,
            now,
            policy,
            wanted,
            found: Vec::new(),
            taken,
            per_rack,
            per_rack_max: per_rack_max(
                request.chosen.len() + request.additional,
                serving.len(),
                map.nodes.rack_count(),
            ),
            load_max: map.settings.load_factor * load / serving.len().max(1) as f64,
            avoid_disconnected: true,
            avoid_stale: false,
            writer_nodes: ip.map(|ip| map.nodes.on_machine(ip)).unwrap_or_default(),
            writer_machine,
            writer_rack,
        }
    }

    fn missing(&self) -> usize {
        self.request.additional - self.found.len()
    }

    /// Takes all targets that it can find; the media still missing stay in `wanted`.
    fn run(&mut self) {
        self.take_favored();
        while self.missing() > 0 {
            let place = self.request.chosen.len() + self.found.len();
            let taken = match place {
                0 => self.take_first(),
                1 => self.take_second(),
                2 => self.take_third(),
                _ => self.take(Scope::Anywhere),
            };
            if !taken && !self.take(Scope::Anywhere) {
                return;
            }
        }
    }

    fn take_favored(&mut self) {
        for favored in self.request.favored {
            if self.missing() == 0 {
                return;
            }
            if let Some(node) = self.map.called(favored) {
                self.take_node(node);
                continue;
            }
            // Another datanode on that machine will do.
            let host = favored.rsplit_once(':').map_or(favored.as_str(), |(host, _)| host);
            let near = self.map.nodes.on_machine(host);
            near.into_iter().any(|node| self.take_node(node));
        }
    }

    fn take_first(&mut self) -> bool {
        if !self.request.avoid_local_node {
            let mut local = self.writer_nodes.clone();
            self.map.random.shuffle(&mut local);
            if local.into_iter().any(|node| self.take_node(node)) {
                return true;
            }
        }
        if self.writer_nodes.is_empty() && !self.map.client_racks.contains_key(&self.writer_machine) {
            return false;
        }
        if self.request.avoid_local_rack {
            let rack = self.writer_rack.clone();
            return self.take(Scope::NotIn(&rack));
        }
        let rack = self.writer_rack.clone();
        self.take(Scope::In(&rack))
    }

    fn take_second(&mut self) -> bool {
        let first = self.rack_of(0);
        self.take(Scope::NotIn(first))
    }

    fn take_third(&mut self) -> bool {
        let (first, second) = (self.rack_of(0), self.rack_of(1));
        if first == second { self.take(Scope::NotIn(first)) } else { self.take(Scope::In(second)) }
    }

    /// Rack of the n-th replica, counting existing ones first.
    fn rack_of(&self, nth: usize) -> &'a str {
        let all = self.request.chosen.iter().chain(&self.found);
        let storage = all.copied().nth(nth).expect("only called for existing replicas");
        let map: &'a BlockMap = self.map;
        &map.nodes.node_of(storage).rack
    }

    /// Takes a random acceptable node of the scope.
    fn take(&mut self, scope: Scope<'_>) -> bool {
        let mut candidates: Vec<DatanodeIndex> = self
            .map
            .nodes
            .iter()
            .filter(|(index, node)| {
                let inside = match scope {
                    Scope::Anywhere => true,
                    Scope::In(rack) => node.rack == rack,
                    Scope::NotIn(rack) => node.rack != rack,
                };
                let avoided = self.request.avoid_local_node && self.writer_nodes.contains(index);
                inside && !avoided && !self.taken.contains(index)
            })
            .map(|(index, _)| index)
            .collect();
        self.map.random.shuffle(&mut candidates);
        if candidates.into_iter().any(|node| self.take_node(node)) {
            return true;
        }
        // NO_LOCAL_WRITE is a preference: a local replica is better than none.
        let local = self.writer_nodes.clone();
        matches!(scope, Scope::Anywhere)
            && self.request.avoid_local_node
            && local.into_iter().any(|node| self.take_node(node))
    }

    /// Takes the node if it is acceptable and has room on one of the media still wanted.
    fn take_node(&mut self, index: DatanodeIndex) -> bool {
        let map: &'a BlockMap = self.map;
        let node = map.nodes.node(index);
        if self.taken.contains(&index) || !node.in_service() {
            return false;
        }
        if self.avoid_disconnected && node.disconnected {
            return false;
        }
        if self.avoid_stale && node.is_stale(&map.settings, self.now) {
            return false;
        }
        if map.settings.consider_load && f64::from(node.xceivers) > self.load_max {
            return false;
        }
        if self.per_rack.get(node.rack.as_str()).copied().unwrap_or(0) >= self.per_rack_max {
            return false;
        }
        let Some((nth, storage)) = self
            .wanted
            .iter()
            .enumerate()
            .find_map(|(nth, medium)| Some((nth, self.storage_with_room(index, *medium)?)))
        else {
            return false;
        };
        self.wanted.remove(nth);
        self.found.push(storage);
        self.taken.insert(index);
        *self.per_rack.entry(node.rack.as_str()).or_default() += 1;
        true
    }

    /// Returns a storage of this medium with room for one block, if the node has room for all blocks scheduled to it
    /// and one more.
    fn storage_with_room(&self, index: DatanodeIndex, medium: StorageType) -> Option<StorageIndex> {
        let node = self.map.nodes.node(index);
        let mut fit: Vec<StorageIndex> = Vec::new();
        let mut remaining: u64 = 0;
        for storage in &node.storages {
            let known = self.map.nodes.storage(*storage);
            if known.storage_type == medium && !known.failed && known.remaining >= self.request.block_size {
                fit.push(*storage);
                remaining = remaining.saturating_add(known.remaining);
            }
        }
        let promised = self.request.block_size.saturating_mul(u64::from(node.scheduled_blocks()));
        if fit.is_empty() || remaining.saturating_sub(promised) < self.request.block_size {
            return None;
        }
        Some(fit[self.map.random.below(fit.len())])
    }

    fn use_fallbacks(&mut self) {
        let fallbacks = if self.request.for_replication {
            self.policy.replication_fallbacks
        } else {
            self.policy.creation_fallbacks
        };
        for fallback in fallbacks {
            for _ in 0..self.missing() {
                self.wanted.push(*fallback);
            }
        }
    }

    /// Orders the found targets as a pipeline: from the writer to the nearest, from there to the nearest remaining one.
    fn pipeline(self) -> Vec<StorageIndex> {
        let mut left = self.found;
        let mut ordered = Vec::with_capacity(left.len());
        let (mut machine, mut rack) = (self.writer_machine, self.writer_rack);
        if self.writer_nodes.is_empty() && !left.is_empty() {
            let first = left.remove(0);
            let node = self.map.nodes.node_of(first);
            (machine, rack) = (node.id.ip.clone(), node.rack.clone());
            ordered.push(first);
        }
        while !left.is_empty() {
            let nearest = (0..left.len())
                .min_by_key(|nth| {
                    let node = self.map.nodes.node_of(left[*nth]);
                    distance(&machine, &rack, &node.id.ip, &node.rack)
                })
                .expect("the list is not empty");
            let next = left.remove(nearest);
            let node = self.map.nodes.node_of(next);
            (machine, rack) = (node.id.ip.clone(), node.rack.clone());
            ordered.push(next);
        }
        ordered
    }
}

/// Largest number of replicas per rack. Source: `getMaxNodesPerRack` of the default placement policy.
fn per_rack_max(replicas: usize, nodes: usize, racks: usize) -> usize {
    let replicas = replicas.min(nodes).max(1);
    if racks <= 1 || replicas <= 1 {
        return replicas;
    }
    let most = (replicas - 1) / racks + 2;
    if most == replicas { most - 1 } else { most }
}
