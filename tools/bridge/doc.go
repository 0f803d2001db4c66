// Package bridge lets code in a container call tools outside it: functions of the container's user, each by its name.
// The bridge checks each call.
//
//	Bridge.AllowList       checks what a container may be given; the rest of it is in proto.CodeTools
//	Bridge.Service         what its code finds on its loopback: GET /v1/tools and POST /v1/calls, and nothing else
//	Bridge.Provide         tools that the holder of a provider session answers, such as a gateway to a model
//	Bridge.Connect         tools that an API client answers, over a websocket
//	Bridge.Calls, Approve, Refuse   the calls of a container, and a person's decision on those that wait for one
//	Bridge.Sweep           ends what waited too long and forgets old calls
//
// A call passes these checks in order: the container's allow-list, the tool's provider, the schema of its input, the
// budget of its command, a person's approval if the list demands it, the provider's answer, the schema of the result.
// The code gets a failure as an exception of a type that it knows; the audit log gets it too.
//
// A call is identified by its command and an identifier that the code chooses. It is recorded before a provider gets
// it, and its end is recorded before the code gets it. The same identifier therefore always leads to the same call,
// also under a later daemon, and no call is answered by two providers. The content of a call is recorded only if a
// person has to read it.
//
// The ledger's buckets:
//
//	tool_calls       container/call ID                a call; see record
//	tool_call_ids    container/exec/client's ID       the call's ID
//	tool_calls_live  call ID                          container, while it is not over
//	tool_offers      container/holder                 a provider session; later daemons make calls wait for its holder
package bridge
