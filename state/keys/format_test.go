package keys

import (
	"testing"

	"berth/proto"
	"berth/test/stored"
)

// TestRecordsKeepTheirFormat holds the names of the ledger's buckets and of the fields in its records.
func TestRecordsKeepTheirFormat(t *testing.T) {
	stored.CheckNames(t, record{}, "id name owner hash admin file quota created expires last_used revoked")
	stored.CheckNames(t, spent{}, "day seconds")
	stored.CheckNames(t, proto.Quota{}, "sessions cpu_seconds_per_day storage_bytes requests_per_second burst")
	if bucketKeys != "keys" || bucketUsage != "key_usage" || secretPrefix != "berth_" {
		t.Errorf("buckets %s and %s, prefix of secrets %s", bucketKeys, bucketUsage, secretPrefix)
	}
}
