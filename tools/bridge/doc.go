// Package bridge has code in a container call tools outside of it: functions of whoever uses the container, each by
// its name, each call judged.
//
//	Bridge.Grant           what a container may be given; the rest of it is in proto.CodeTools
//	Bridge.Service         what its code finds on its loopback: GET /v1/tools and POST /v1/calls, and nothing else
//	Bridge.Offer           tools that whoever holds the offer answers, such as a gateway to a model
//	Bridge.Connect         tools that a client of the API answers, over a websocket
//	Bridge.Calls, Approve, Refuse   the calls of a container, and what a person decides about those that wait for that
//	Bridge.Sweep           ends what waited too long and forgets old calls
//
// A call passes, in this order: the container's list of tools, whether somebody answers that tool, the schema of its
// input, the budget of its command, a person's approval where the list says so, the one who answers, and the schema
// of the result. What fails is told to the code as an exception of a type that it knows, and to the audit log.
//
// A call is known by its command and an identifier that the code's side chose. It is written down before anybody is
// asked to answer it, and its end before the code gets that: whoever comes again with the same identifier gets the
// same call, also from a later daemon, and no call is answered by two. What a call says is not written down, but for
// one that a person has to read.
//
// The ledger's buckets:
//
//	tool_calls       container/call ID                a call; see record
//	tool_call_ids    container/exec/client's ID       the call's ID
//	tool_calls_live  call ID                          container, while it is not over
//	tool_offers      container/holder                 an offer, so that a later daemon has calls wait for its holder
package bridge
