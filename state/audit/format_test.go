package audit

import (
	"testing"

	"berth/proto"
	"berth/test/stored"
)

// TestRecordsKeepTheirFormat holds the names in the entries of the log, and in the anchor in the ledger.
func TestRecordsKeepTheirFormat(t *testing.T) {
	stored.CheckNames(t, proto.AuditEntry{}, "seq prev time act outcome actor owner request_id container_id generation exec_id item "+
		"note exec egress call port hash")
	stored.CheckNames(t, proto.AuditPort{}, "port address pid program")
	stored.CheckNames(t, proto.AuditExec{}, "job_id user command pid reason return_code seconds cpu_seconds stdout_bytes "+
		"stderr_bytes produced file_ids")
	stored.CheckNames(t, proto.AuditEgress{}, "method host port address reason sent_bytes received_bytes seconds secrets")
	stored.CheckNames(t, proto.AuditCall{}, "id tool error input_bytes result_bytes seconds")
	stored.CheckNames(t, Anchor{}, "seq hash closed time")
	if bucket != "audit" || anchorKey != "head" {
		t.Errorf("the anchor is at %s/%s", bucket, anchorKey)
	}
}
