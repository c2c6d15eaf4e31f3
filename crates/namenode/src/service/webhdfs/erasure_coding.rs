//! Erasure coding, which is not supported: queries are answered accordingly, and changes are refused.

use hearth_wire::proto::hdfs::{
    DisableErasureCodingPolicyRequestProto, DisableErasureCodingPolicyResponseProto,
    EnableErasureCodingPolicyRequestProto, EnableErasureCodingPolicyResponseProto, GetErasureCodingCodecsRequestProto,
    GetErasureCodingCodecsResponseProto, GetErasureCodingPoliciesRequestProto, GetErasureCodingPoliciesResponseProto,
    GetErasureCodingPolicyRequestProto, GetErasureCodingPolicyResponseProto, SetErasureCodingPolicyRequestProto,
    SetErasureCodingPolicyResponseProto, UnsetErasureCodingPolicyRequestProto, UnsetErasureCodingPolicyResponseProto,
};
use serde_json::{Map, Value, json};

use super::{Answer, Operation, answer};

impl Operation {
    pub(super) async fn erasure_coding_policy(&self) -> Answer {
        let request = GetErasureCodingPolicyRequestProto { src: self.path.clone() };
        self.call::<GetErasureCodingPolicyResponseProto>("getErasureCodingPolicy", &request).await?;
        Ok(answer(&Value::Null))
    }

    pub(super) async fn erasure_coding_policies(&self) -> Answer {
        let request = GetErasureCodingPoliciesRequestProto {};
        self.call::<GetErasureCodingPoliciesResponseProto>("getErasureCodingPolicies", &request).await?;
        Ok(answer(&json!({ "ErasureCodingPolicies": { "ErasureCodingPolicyInfo": null } })))
    }

    pub(super) async fn erasure_coding_codecs(&self) -> Answer {
        let request = GetErasureCodingCodecsRequestProto {};
        let listed: GetErasureCodingCodecsResponseProto = self.call("getErasureCodingCodecs", &request).await?;
        let codecs: Map<String, Value> =
            listed.codec.into_iter().map(|codec| (codec.codec, Value::from(codec.coders))).collect();
        Ok(answer(&json!({ "ErasureCodingCodecs": codecs })))
    }

    pub(super) async fn set_erasure_coding_policy(&self) -> Answer {
        let ec_policy_name = Some(self.parameters.needed("ecpolicy", "SETECPOLICY")?.to_owned());
        let request = SetErasureCodingPolicyRequestProto { src: self.path.clone(), ec_policy_name };
        self.change::<SetErasureCodingPolicyResponseProto>("setErasureCodingPolicy", &request).await
    }

    pub(super) async fn unset_erasure_coding_policy(&self) -> Answer {
        let request = UnsetErasureCodingPolicyRequestProto { src: self.path.clone() };
        self.change::<UnsetErasureCodingPolicyResponseProto>("unsetErasureCodingPolicy", &request).await
    }

    pub(super) async fn enable_erasure_coding_policy(&self) -> Answer {
        let ec_policy_name = self.parameters.needed("ecpolicy", "ENABLEECPOLICY")?.to_owned();
        let request = EnableErasureCodingPolicyRequestProto { ec_policy_name };
        self.change::<EnableErasureCodingPolicyResponseProto>("enableErasureCodingPolicy", &request).await
    }

    pub(super) async fn disable_erasure_coding_policy(&self) -> Answer {
        let ec_policy_name = self.parameters.needed("ecpolicy", "DISABLEECPOLICY")?.to_owned();
        let request = DisableErasureCodingPolicyRequestProto { ec_policy_name };
        self.change::<DisableErasureCodingPolicyResponseProto>("disableErasureCodingPolicy", &request).await
    }
}
