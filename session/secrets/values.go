package secrets

// MapValues maps the values of a map; an empty map becomes nil.
func MapValues[A, B any](from map[string]A, fn func(A) B) map[string]B {
	if len(from) == 0 {
		return nil
	}
	to := make(map[string]B, len(from))
	for k, v := range from {
		to[k] = fn(v)
	}
	return to
}
