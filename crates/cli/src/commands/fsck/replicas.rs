use hearth_types::{DatanodeAdminState, LocatedBlock};

/// Good replicas of a block by the state of their DataNodes, as far as the NameNode reports them to a reader. It omits
/// replicas on DataNodes in maintenance, and does not mark excess replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replicas {
    /// Replicas on DataNodes that stay in service.
    pub live: u64,
    pub decommissioned: u64,
    pub decommissioning: u64,
    pub entering_maintenance: u64,
    pub in_maintenance: u64,
}

impl Replicas {
    pub fn of(located: &LocatedBlock) -> Self {
        let mut replicas = Self::default();
        // In this case the locations are those of the corrupt replicas.
        if located.corrupt {
            return replicas;
        }
        for datanode in &located.locations {
            *match datanode.admin_state {
                DatanodeAdminState::Normal => &mut replicas.live,
                DatanodeAdminState::Decommissioned => &mut replicas.decommissioned,
                DatanodeAdminState::DecommissionInProgress => &mut replicas.decommissioning,
                DatanodeAdminState::EnteringMaintenance => &mut replicas.entering_maintenance,
                DatanodeAdminState::InMaintenance => &mut replicas.in_maintenance,
            } += 1;
        }
        replicas
    }

    pub fn total(&self) -> u64 {
        self.live + self.decommissioned + self.decommissioning + self.entering_maintenance + self.in_maintenance
    }

    pub fn add(&mut self, other: &Self) {
        self.live += other.live;
        self.decommissioned += other.decommissioned;
        self.decommissioning += other.decommissioning;
        self.entering_maintenance += other.entering_maintenance;
        self.in_maintenance += other.in_maintenance;
    }
}
