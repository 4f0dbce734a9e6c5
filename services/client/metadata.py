"""A release for catalogues: DCAT-AP, Croissant and a citation, each with the privacy statement.

Terms that no vocabulary has (mechanism, epsilon, delta, unit, neighbour relation) are `urn:commingle:terms:`. Creators
have the names that their keys state; `commingle verify` says which of them are known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self

from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.release.verification import PublishedRelease

_TERMS = "urn:commingle:terms:"
_MEDIA_TYPES = "https://www.iana.org/assignments/media-types/"
_KEYWORDS = ["differential privacy", "aggregate data"]
_CR = (
    *("citeAs", "column", "extract", "field", "fileProperty", "fileObject", "fileSet", "format", "includes"),
    *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex", "repeated"),
    *("replace", "separator", "source", "subField", "transform"),
)
_CROISSANT = {  # the validator asks for all of this
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "commingle": _TERMS,
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _CR},
}
_DCAT = {
    "commingle": _TERMS,
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "dpv": "https://w3id.org/dpv#",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "spdx": "http://spdx.org/rdf/terms#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}


@dataclass(frozen=True, slots=True)
class Distribution:
    """A file of a release.

    Attributes:
        url: its address, relative to the metadata or absolute.
        media_type: such as `text/csv`.
        sha256: of its bytes, hex.
        size: how many bytes it has; None if unknown.
        columns: for a table, whether each column holds numbers, by name.
    """

    name: str
    url: str
    media_type: str
    about: str
    sha256: str
    size: int | None = None
    columns: Mapping[str, bool] | None = None

    @classmethod
    def of(cls, name: str, media_type: str, about: str, data: bytes, columns: Mapping[str, bool] | None = None) -> Self:
        """A file that lies beside the metadata."""
        return cls(name, name, media_type, about, sha256(data).hexdigest(), len(data), columns)


def served(published: PublishedRelease, coordinator: str) -> tuple[Distribution, ...]:
    """The matrix and the moments, at the addresses where a coordinator serves them."""
    at, manifest = f"{coordinator.rstrip('/')}/v1/releases/{published.release}", published.manifest
    parquet, matrix = "application/vnd.apache.parquet", "The published matrix, integers with noise."
    return (
        Distribution("matrix.parquet", f"{at}/matrix", parquet, matrix, manifest.matrix_sha256),
        Distribution(
            "moments.json", f"{at}/moments", "application/json", "Second moments with noise.", manifest.moments_sha256
        ),
    )


def privacy_sentence(published: PublishedRelease) -> str:
    spec, stated = published.spec, published.manifest.privacy
    return (
        f"Differentially private (mechanism {spec.mechanism}): epsilon {spec.epsilon:g} and delta {stated.delta:g} for "
        f"each member's data, and for a person to everybody epsilon {stated.per_subject.own.epsilon:.3g} and delta "
        f"{stated.delta:g}. Neighbour relation: {stated.adjacency}. {stated.protects} {stated.trust}"
    )


def citation(published: PublishedRelease) -> str:
    """How to cite the release, in a sentence."""
    spec, year = published.spec, published.manifest.published.year
    return (
        f"{', '.join(party.name for party in spec.parties)} ({year}). {spec.study} [differentially private release, "
        f"{spec.mechanism}, epsilon {spec.epsilon:g} per member, delta {spec.delta:g}]. {_id(published)}"
    )


def croissant(published: PublishedRelease, files: Sequence[Distribution]) -> dict[str, Any]:
    """The release as a data set of Croissant 1.0, and so of schema.org."""
    stated = published.spec.stated
    return {
        "@context": _CROISSANT,
        "@id": _id(published),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": published.spec.study,
        "description": _description(published),
        "identifier": published.release,
        "version": "1.0.0",
        "datePublished": published.manifest.published.isoformat(),
        "url": files[0].url if files else _id(published),
        "keywords": _KEYWORDS,
        "creator": [{"@type": "sc:Organization", "name": party.name} for party in published.spec.parties],
        "citeAs": citation(published),
        "rai:personalSensitiveInformation": privacy_sentence(published),
        **({"rai:dataUseCases": stated["purpose"]} if "purpose" in stated else {}),
        "commingle:privacy": _privacy(published),
        "variableMeasured": [_variable(attribute) for attribute in published.spec.terms.attributes],
        "distribution": [_file_object(file) for file in files],
        "recordSet": [_record_set(file, file.columns) for file in files if file.columns],
    }


def dcat(published: PublishedRelease, files: Sequence[Distribution]) -> dict[str, Any]:
    """The release as a data set of DCAT-AP 3, in JSON-LD."""
    sentence, spec = privacy_sentence(published), published.spec
    return {
        "@context": _DCAT,
        "@id": _id(published),
        "@type": "dcat:Dataset",
        "dct:title": spec.study,
        "dct:description": _description(published),
        "dct:identifier": published.release,
        "dct:issued": {"@type": "xsd:dateTime", "@value": published.manifest.published.isoformat()},
        "dct:publisher": _agent(f"Commingle coordinator {published.coordinator}"),
        "dct:creator": [_agent(party.name) for party in spec.parties],
        "dct:provenance": {"@type": "dct:ProvenanceStatement", "rdfs:label": sentence},
        "dcat:keyword": [*_KEYWORDS, *(attribute.name for attribute in spec.terms.attributes)],
        "dpv:hasTechnicalMeasure": {"@id": "dpv:DifferentialPrivacy"},
        "commingle:privacy": _privacy(published),
        "commingle:citation": citation(published),
        "dcat:distribution": [_distribution(file) for file in files],
    }


FORMS = {"dcat": dcat, "croissant": croissant}


def _id(published: PublishedRelease) -> str:
    return f"urn:commingle:release:{published.release}"


def _description(published: PublishedRelease) -> str:
    attributes = ", ".join(attribute.name for attribute in published.spec.terms.attributes)
    said = " ".join(f"{sentence.rstrip('.')}." for sentence in published.spec.stated_sentences)
    return f"{published.size}. Attributes: {attributes}. {said} {privacy_sentence(published)}".replace("  ", " ")


def _privacy(published: PublishedRelease) -> dict[str, Any]:
    spec, stated = published.spec, published.manifest.privacy
    facts = {
        "mechanism": spec.mechanism,
        "epsilonPerParty": spec.epsilon,
        "epsilonPerPerson": stated.per_subject.own.epsilon,
        "epsilonPerPersonToOutsiders": stated.outsiders.own.epsilon,
        "delta": stated.delta,
        "unit": "one person, who is a row at every member",
        "neighbourRelation": stated.adjacency,
        "protects": stated.protects,
        "trust": stated.trust,
    }
    return {"@type": "commingle:PrivacyStatement", **{f"commingle:{name}": value for name, value in facts.items()}}


def _variable(attribute: Attribute) -> dict[str, Any]:
    about: dict[str, Any] = {"@type": "sc:PropertyValue", "name": attribute.name}
    if not isinstance(attribute, NumericAttribute):
        return about | {"description": f"Levels: {', '.join(attribute.levels)}"}
    unit = {} if attribute.unit is None else {"unitText": attribute.unit}
    return about | unit | {"minValue": attribute.lower, "maxValue": attribute.upper}


def _file_object(file: Distribution) -> dict[str, Any]:
    size = {} if file.size is None else {"contentSize": f"{file.size} B"}
    return {
        "@id": file.name,
        "@type": "cr:FileObject",
        "name": file.name,
        "description": file.about,
        "contentUrl": file.url,
        "encodingFormat": file.media_type,
        "sha256": file.sha256,
        **size,
    }


def _record_set(file: Distribution, columns: Mapping[str, bool]) -> dict[str, Any]:
    name = file.name.partition(".")[0]
    fields = [
        {
            "@id": f"{name}/{column}",
            "@type": "cr:Field",
            "name": f"{name}/{column}",
            "dataType": "sc:Float" if number else "sc:Text",
            "source": {"fileObject": {"@id": file.name}, "extract": {"column": column}},
        }
        for column, number in columns.items()
    ]
    return {"@id": name, "@type": "cr:RecordSet", "name": name, "description": file.about, "field": fields}


def _agent(name: str) -> dict[str, Any]:
    return {"@type": "foaf:Agent", "foaf:name": name}


def _distribution(file: Distribution) -> dict[str, Any]:
    return {  # no byteSize: DCAT 2 and 3 have it of two types
        "@type": "dcat:Distribution",
        "dct:title": file.name,
        "dct:description": file.about,
        "dcat:accessURL": {"@id": file.url},
        "dcat:downloadURL": {"@id": file.url},
        "dcat:mediaType": {"@id": f"{_MEDIA_TYPES}{file.media_type}"},
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256"},
            "spdx:checksumValue": {"@type": "xsd:hexBinary", "@value": file.sha256},
        },
    }
