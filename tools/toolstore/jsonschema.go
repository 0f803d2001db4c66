package toolstore

// jsonTypes maps types of fields to the names of JSON Schema.
var jsonTypes = map[string]string{
	typeString: "string", typeInteger: "integer", typeNumber: "number", typeBoolean: "boolean", typeArray: "array",
	typeObject: "object",
}

// JSONSchema returns a list of fields as JSON Schema (2020-12). The schema allows additional fields: an input drops
// them, and an output may have them.
func JSONSchema(list []Field) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range list {
		properties[f.Name] = fieldSchema(f)
		if f.Required {
			required = append(required, f.Name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

func fieldSchema(f Field) map[string]any {
	s := map[string]any{"type": jsonTypes[f.FieldType]}
	if f.Description != "" {
		s["description"] = f.Description
	}
	if f.ItemsType != "" {
		s["items"] = map[string]any{"type": jsonTypes[f.ItemsType]}
	}
	return s
}
