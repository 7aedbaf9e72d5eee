"""What requests ask and answers say, typed; the OpenAPI page is made of this."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from daydream.serve.refusal import LONGEST

Name = Annotated[str, Field(min_length=1, max_length=200)]
NewName = Annotated[str, Field(min_length=1, max_length=LONGEST)]
"""What a class is to be called; one of the command line's may be longer."""
Ids = Annotated[list[Annotated[str, Field(pattern="^[0-9a-f]{16}$")]], Field(min_length=1, max_length=10_000)]


class Asked(BaseModel):
    """A request: what is not known is refused."""

    model_config = ConfigDict(extra="forbid")


class Failure(BaseModel):
    error: str
    """One line: what is wrong, and what to do."""


class NewModel(Asked):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    method: Name | None = None
    """None: the exact learner, whose lessons forget nothing. Else a method that adapts its network, e.g. replay."""
    backbone: Name | None = None
    image_size: Annotated[int, Field(ge=8, le=1024)] | None = None


class Rename(Asked):
    name: Name
    to: NewName


class Merge(Asked):
    names: Annotated[list[Name], Field(min_length=2, max_length=1000)]
    into: NewName


class Forget(Asked):
    names: Annotated[list[Name], Field(min_length=1, max_length=1000)]


class Chosen(Asked):
    ids: Ids


class Move(Chosen):
    to: NewName


class LessonAsked(Asked):
    epochs: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Of an adapting method alone."""
    unlabelled: bool = False
    """Whether the lesson gets the unlabelled pictures, too: for a method that uses them."""
    afresh: bool = False
    """Whether a lesson that was interrupted is dropped; else it goes on, with its own pictures and settings."""


class ClassAnswer(BaseModel):
    name: str
    known: int
    """Pictures it has learnt."""
    kept: int
    """Pictures that lie beside the model, the waiting ones included."""
    waiting: int
    """Pictures for the next lesson."""
    accuracy: list[float | None]
    """In per cent on pictures not learnt, after each change since it came."""
    pictures: list[str]
    """The first of its pictures, by ID."""


class ProgressAnswer(BaseModel):
    state: Literal["running", "done", "failed", "cancelled"]
    images: int
    stage: str
    done: float
    total: float
    seconds: float
    seconds_left: float | None
    note: str
    error: str
    before: dict[str, float | None]
    after: dict[str, float | None]


class ModelLine(BaseModel):
    name: str
    file: str
    exists: bool


class ModelAnswer(ModelLine):
    kind: Literal["exact", "adapting"]
    about: str
    side: int
    keeps_pictures: bool
    classes: list[ClassAnswer]
    sentence: str
    """How good it is, and what would help."""
    can_undo: bool
    unlabelled: int
    notices: list[str]
    """What was interrupted, or changed by another program."""
    lesson: ProgressAnswer | None
    uses_unlabelled: Literal["no", "may", "must"]
    """Whether lessons of its method use unlabelled pictures."""


class PictureLine(BaseModel):
    id: str
    label: str | None
    waiting: bool


class PictureList(BaseModel):
    total: int
    pictures: list[PictureLine]


class Upload(BaseModel):
    kept: dict[str, int]
    """By class; unlabelled ones under the empty name."""
    doubled: int
    passed_over: int
    why: list[str]


class Estimate(BaseModel):
    images: int
    new: list[str]
    """Classes that the model does not know yet."""
    again: list[str]
    epochs: int | None
    """None: the exact learner has none."""
    seconds: float | None
    """At least about so many; None: nothing tells yet."""
    seconds_most: float | None
    kept: bool
    """Whether a lesson that was interrupted is kept."""
    goes_on: bool
    """Whether the next lesson goes on with it."""
    sentence: str


class Probability(BaseModel):
    name: str
    probability: float


class Near(BaseModel):
    id: str
    name: str
    cosine: float
    kept: bool
    """Whether its picture lies beside the model."""


class Prediction(BaseModel):
    file: str
    classes: list[Probability]
    none_of_these: bool | None
    """Whether it is likely of no known class; None where nothing tells."""
    nearest: list[Near]


class Doubt(BaseModel):
    id: str
    name: str
    kind: Literal["mislabelled", "doubled", "odd"]
    other: str
    strength: float
    kept: bool


class History(BaseModel):
    records: list[dict[str, Any]]


class Limits(BaseModel):
    request_bytes: int
    picture_bytes: int
    files: int


class About(BaseModel):
    version: str
    models: list[ModelLine]
    can_add: bool
    """Whether a new model may be named."""
    limits: Limits
    methods: dict[str, str]
