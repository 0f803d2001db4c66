package openapi

import (
	"fmt"
	"strconv"
)

// addTo writes the example into the description of its operation. It panics if the operation has no such parameter,
// body or answer.
func (x Example) addTo(o Schema, e Entry) {
	list, _ := o["parameters"].([]any)
	used := 0
	for _, p := range list {
		p := p.(Schema)
		if v, ok := x.Parameters[p["name"].(string)]; ok {
			p["example"] = v
			used++
		}
	}
	if used != len(x.Parameters) {
		panic(fmt.Sprintf("the example of %s has parameters that the operation has not: %v", e.ID, x.Parameters))
	}
	if x.Body != nil {
		if e.Body == nil {
			panic("the example of " + e.ID + " has a body, and the operation has none")
		}
		o["requestBody"].(Schema)["content"].(Schema)[e.Body[0].Media].(Schema)["example"] = x.Body
	}
	contents, ok := e.Answers[x.Status]
	if !ok {
		panic(fmt.Sprintf("the example of %s is answered %d, and the operation is not", e.ID, x.Status))
	}
	if x.Answer != nil {
		answer := o["responses"].(Schema)[strconv.Itoa(x.Status)].(Schema)
		answer["content"].(Schema)[contents[0].Media].(Schema)["example"] = x.Answer
	}
}
