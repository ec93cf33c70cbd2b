#!/usr/bin/python3
"""A generic gRPC client that knows nothing of our protos: it learns them through reflection (v1alpha) and calls GetJob."""

import grpc
import harness
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


# The reflection protocol itself, from grpc/reflection/v1alpha/reflection.proto (the Debian package of it is not assumed).
def reflection_messages():
    file = descriptor_pb2.FileDescriptorProto(name="reflection.proto", package="r", syntax="proto3")

    def message(name, *fields):
        m = file.message_type.add(name=name)
        for field, number, kind, type_name in fields:
            f = m.field.add(name=field, number=number, label=3 if kind.endswith("*") else 1,
                            type={"string": 9, "bytes": 12, "message": 11}[kind.rstrip("*")])
            if type_name:
                f.type_name = ".r." + type_name

    message("Request", ("file_by_filename", 3, "string", None), ("file_containing_symbol", 4, "string", None),
            ("list_services", 7, "string", None))
    message("Files", ("file_descriptor_proto", 1, "bytes*", None))
    message("Service", ("name", 1, "string", None))
    message("Services", ("service", 1, "message*", "Service"))
    message("Response", ("files", 4, "message", "Files"), ("services", 6, "message", "Services"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return (factory.GetPrototype(pool.FindMessageTypeByName("r.Request")),
            factory.GetPrototype(pool.FindMessageTypeByName("r.Response")))


class GenericClient:
    def __init__(self, address, metadata=()):
        self.metadata = list(metadata)  # of calls; reflection itself needs none
        self.channel = grpc.insecure_channel(address)
        self.request_type, self.response_type = reflection_messages()
        self.pool = descriptor_pool.DescriptorPool()
        self.loaded = set()

    def reflect(self, **kw):
        call = self.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                          request_serializer=self.request_type.SerializeToString,
                                          response_deserializer=self.response_type.FromString)
        return next(iter(call(iter([self.request_type(**kw)]), timeout=10)))

    def services(self):
        return [s.name for s in self.reflect(list_services="*").services.service]

    def load(self, **kw):
        for blob in self.reflect(**kw).files.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(blob)
            if file.name in self.loaded:
                continue
            self.loaded.add(file.name)
            for dependency in file.dependency:
                self.load(file_by_filename=dependency)
            self.pool.Add(file)

    def call(self, service, method, /, **fields):
        self.load(file_containing_symbol=service)
        descriptor = self.pool.FindServiceByName(service).methods_by_name[method]
        factory = message_factory.MessageFactory(self.pool)
        request = factory.GetPrototype(descriptor.input_type)(**fields)
        reply = factory.GetPrototype(descriptor.output_type)
        unary = self.channel.unary_unary(f"/{service}/{method}", request_serializer=type(request).SerializeToString,
                                         response_deserializer=reply.FromString)
        return unary(request, timeout=10, metadata=self.metadata)


class Reflection(harness.ClusterTest):
    WORKERS = 1

    def test_lists_services_and_calls_get_job(self):
        job = self.cluster.submit(harness.tiny_job(self.data, 5, workers=1))
        self.cluster.wait_state(job, "SUCCEEDED")
        client = GenericClient(self.cluster.address, harness.metadata(self.cluster.address))
        services = client.services()
        for name in ("hearth.v1.JobService", "hearth.v1.WorkerService", "hearth.v1.AgentService", "hearth.v1.IdentityService",
                     "hearth.v1.CoordinatorService", "hearth.v1.GenerateService", "hearth.v1.PlanService",
                     "grpc.health.v1.Health"):
            self.assertIn(name, services)
        reply = client.call("hearth.v1.JobService", "GetJob", job_id=job)
        self.assertEqual((reply.job_id, reply.spec.train.steps, reply.step), (job, 5, 5))
        health = client.call("grpc.health.v1.Health", "Check", service="hearth.v1.JobService")
        self.assertEqual(health.status, 1)

    def test_errors_carry_details(self):
        client = GenericClient(self.cluster.address, harness.metadata(self.cluster.address))
        with self.assertRaises(grpc.RpcError) as caught:
            client.call("hearth.v1.JobService", "GetJob", job_id="none")
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        details = dict(caught.exception.trailing_metadata())["grpc-status-details-bin"]
        self.assertIn(b"google.rpc.ErrorInfo", details)


if __name__ == "__main__":
    harness.main()
