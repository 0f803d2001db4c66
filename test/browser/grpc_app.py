# Answers one call with what it got, and another one with three messages.
from concurrent import futures

import grpc

calls = {
    "Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request),
    "Thrice": grpc.unary_stream_rpc_method_handler(lambda request, context: iter([request] * 3)),
}
server = grpc.server(futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", calls),))
server.add_insecure_port("127.0.0.1:50051")
server.start()
server.wait_for_termination()
