package resolve

import (
	"context"
	"net"

	"golang.org/x/net/dns/dnsmessage"
)

// mostRecords bounds the records of one answer.
const mostRecords = 32

// A Record is a record of SRV, MX or TXT.
type Record struct {
	Body dnsmessage.ResourceBody
	Host string // that it leads to; empty: none
}

// Records asks the name server for the SRV, MX or TXT records of a name. The caller judges the hosts that they lead to.
func (r *Resolver) Records(ctx context.Context, name string, kind dnsmessage.Type) ([]Record, error) {
	list, err := r.records(ctx, name+".", kind)
	if len(list) == 0 {
		return nil, failed(ctx, err, name)
	}
	return list[:min(len(list), mostRecords)], nil
}

// records asks the name server. An error beside records tells of others that cannot be read.
func (r *Resolver) records(ctx context.Context, name string, kind dnsmessage.Type) (list []Record, err error) {
	add := func(host string, body dnsmessage.ResourceBody) {
		if host == "." { // a service that is not there
			host = ""
		}
		list = append(list, Record{body, host})
	}
	switch kind {
	case dnsmessage.TypeSRV:
		var found []*net.SRV
		_, found, err = r.names.LookupSRV(ctx, "", "", name)
		for _, one := range found {
			if host, bad := dnsmessage.NewName(one.Target); bad == nil {
				add(one.Target, &dnsmessage.SRVResource{Priority: one.Priority, Weight: one.Weight, Port: one.Port,
					Target: host})
			}
		}
	case dnsmessage.TypeMX:
		var found []*net.MX
		found, err = r.names.LookupMX(ctx, name)
		for _, one := range found {
			if host, bad := dnsmessage.NewName(one.Host); bad == nil {
				add(one.Host, &dnsmessage.MXResource{Pref: one.Pref, MX: host})
			}
		}
	case dnsmessage.TypeTXT:
		var found []string
		found, err = r.names.LookupTXT(ctx, name)
		for _, text := range found {
			add("", &dnsmessage.TXTResource{TXT: inParts(text)})
		}
	}
	return list, err
}

// inParts cuts a text into the strings of a record, which have at most 255 bytes each.
func inParts(text string) (parts []string) {
	for ; len(text) > 255; text = text[255:] {
		parts = append(parts, text[:255])
	}
	return append(parts, text)
}
