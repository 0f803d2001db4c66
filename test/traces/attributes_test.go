package traces_test

import common "go.opentelemetry.io/proto/otlp/common/v1"

// attributesOf returns attributes by their names. Values are strings, int64s, bools and lists of them.
func attributesOf(list []*common.KeyValue) map[string]any {
	all := map[string]any{}
	for _, kv := range list {
		all[kv.Key] = valueOf(kv.Value)
	}
	return all
}

func valueOf(v *common.AnyValue) any {
	switch v := v.Value.(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_IntValue:
		return v.IntValue
	case *common.AnyValue_BoolValue:
		return v.BoolValue
	case *common.AnyValue_ArrayValue:
		var list []any
		for _, e := range v.ArrayValue.Values {
			list = append(list, valueOf(e))
		}
		return list
	}
	return nil
}
